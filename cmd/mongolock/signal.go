package main

import "syscall"

// interrupt is what a terminal sends for Ctrl-C.
const interrupt = syscall.SIGINT
