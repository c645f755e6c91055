package docdb

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// many is how many documents a collection has before it remembers their places.
const many = 256

// place remembers where a document is, if places are remembered.
func (c *coll) place(at int) {
	if c.places == nil {
		return
	}
	id, _ := get(c.docs[at], "_id")
	if text, ok := id.(string); ok {
		c.places[text] = at
	}
}

// find returns the position of the document with an _id, or -1.
func (c *coll) find(id any) int {
	if text, ok := id.(string); ok && len(c.docs) > many {
		if c.places == nil {
			c.places = make(map[string]int, len(c.docs))
			for at := range c.docs {
				c.place(at)
			}
		}
		if at, ok := c.places[text]; ok {
			return at
		}
		return -1
	}
	return slices.IndexFunc(c.docs, func(d bson.D) bool {
		other, _ := get(d, "_id")
		return compare(other, id) == 0
	})
}
