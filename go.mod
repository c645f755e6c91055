module github.com/mongolock/mongolock

go 1.26.0
