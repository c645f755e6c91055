package mongolock

// What the tests outside of the package share with those inside.
var (
	MongoNeeds   = mongoNeeds
	MongoConnect = mongoClient
	MongoColl    = mongoColl
)
