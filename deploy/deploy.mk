# Images and deployments.
