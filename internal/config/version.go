package config

// Version is the version of all programs of the project. The build of a release sets it.
var Version = "0.1.0"
