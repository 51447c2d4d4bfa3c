// Command hello is a program small enough to be built for every platform in a test.
package main

func main() { println("hello") }
