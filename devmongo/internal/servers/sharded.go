package servers

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A cluster is a sharded one: a config server, shards of one member each, and a router.
type cluster struct {
	config node
	shards []node
	router func(configHosts string) node
	routed node // the router, once it was made
	close  func() error
}

const configName = "config"

func shardName(i int) string { return fmt.Sprint("shard", i) }

func newCluster(mongod string, s Config) (*cluster, error) {
	mongos, err := lookPath("mongos")
	if err != nil {
		return nil, fmt.Errorf("a sharded cluster needs mongos beside mongod: %w", err)
	}
	port := s.Port
	s.Port = 0
	c := &cluster{}
	if c.config, err = mongodProcess(mongod, mongodArgs(configName, "--configsvr"), 0, s); err != nil {
		return nil, err
	}
	for i := range s.Shards {
		shard, err := mongodProcess(mongod, mongodArgs(shardName(i), "--shardsvr"), i, s)
		if err != nil {
			return nil, err
		}
		c.shards = append(c.shards, shard)
	}
	c.router = func(config string) node {
		s.Port, s.Clocks = port, false
		p, _ := mongodProcess(mongos, mongosArgs(config), 0, s) // fails for want of a clock alone
		return p
	}
	return c, nil
}

func mongosArgs(config string) func(port int, dir string, auth bool) ([]string, error) {
	return func(port int, dir string, _ bool) ([]string, error) {
		return []string{"--configdb", config, "--bind_ip", "127.0.0.1", "--port", fmt.Sprint(port)}, os.MkdirAll(dir, 0o700)
	}
}

func (c *cluster) start(ctx context.Context) (uri string, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	if err := c.config.launch(ctx); err != nil {
		return "", fmt.Errorf("the config server: %w", err)
	}
	if err := initiateAlone(ctx, configName, true, c.config.host()); err != nil {
		return "", fmt.Errorf("the config server: %w", err)
	}
	for i, shard := range c.shards {
		if err := shard.launch(ctx); err != nil {
			return "", fmt.Errorf("shard %d: %w", i, err)
		}
		if err := initiateAlone(ctx, shardName(i), false, shard.host()); err != nil {
			return "", fmt.Errorf("shard %d: %w", i, err)
		}
	}
	c.routed = c.router(configName + "/" + c.config.host())
	if err := c.routed.launch(ctx); err != nil {
		return "", fmt.Errorf("the router: %w", err)
	}
	uri = "mongodb://" + c.routed.host() + "/"
	for i, shard := range c.shards {
		if err := command(ctx, uri, bson.D{{Key: "addShard", Value: shardName(i) + "/" + shard.host()}}); err != nil {
			return "", fmt.Errorf("adding shard %d: %w", i, err)
		}
	}
	return uri, awaitPrimary(ctx, uri)
}

// initiateAlone makes a node a set of one, and waits until it is primary.
func initiateAlone(ctx context.Context, name string, forConfig bool, host string) error {
	if err := initiateSet(ctx, name, forConfig, host); err != nil {
		return err
	}
	return awaitPrimary(ctx, "mongodb://"+host+"/?replicaSet="+name)
}

// nodes are the shards: they are what can be broken.
func (c *cluster) nodes() []node { return c.shards }

func (c *cluster) kill() error                   { return errors.ErrUnsupported }
func (c *cluster) restart(context.Context) error { return errors.ErrUnsupported }

func (c *cluster) stop() error {
	all := append([]node{c.config}, c.shards...)
	if c.routed != nil {
		all = append([]node{c.routed}, all...)
	}
	err := forAll(all, node.stop)
	if c.close != nil {
		err = errors.Join(err, c.close())
	}
	return err
}
