package mongolock_test

import (
	"context"
	"fmt"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// An application may send notices of its own over the feed of a client's store.
func ExampleClient_Feed() {
	client, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	for notice, err := range client.Feed().Watch(context.Background(), store.Audience{Topics: []string{"prices"}}) {
		if notice == (store.Notice{}) { // the feed is live
			_ = client.Feed().Notify(context.Background(), store.Notice{Topic: "prices", Key: "EUR", Kind: "changed"})
			continue
		}
		fmt.Println(notice.Topic, notice.Key, notice.Kind, err)
		break
	}
	// Output: prices EUR changed <nil>
}
