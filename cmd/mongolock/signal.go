package main

import "syscall"

// interrupt is the signal that a terminal sends for Ctrl-C.
const interrupt = syscall.SIGINT
