package config

// Version is that of all programs of the project. A release sets it when it is built.
var Version = "0.1.0"
