package config

// Version is the version of all programs of the project. The release build sets it.
var Version = "0.1.0"
