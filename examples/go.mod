module github.com/mongolock/mongolock/examples

go 1.26.0

require github.com/mongolock/mongolock v0.1.0

replace github.com/mongolock/mongolock => ../
