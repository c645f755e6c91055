module github.com/mongolock/mongolock

go 1.26.0

require go.mongodb.org/mongo-driver/v2 v2.9.3 // indirect
