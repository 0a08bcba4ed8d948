package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"time"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	cacheutil "github.com/argoproj/argo-cd/v3/util/cache"
	"github.com/argoproj/argo-cd/v3/util/cache/appstate"
	"github.com/redis/go-redis/v9"
)

// entries has Argo CD's own cache write what its controller tells of an Application and a cluster, or read what somebody
// else has written there. What was written or read is the answer, as JSON.
func entries(line json.RawMessage) (any, error) {
	var request struct {
		Address  string  `json:"address"`
		Password string  `json:"password"`
		Compress string  `json:"compress"`
		Write    bool    `json:"write"`
		Instance string  `json:"instance"`
		Server   string  `json:"server"`
		Seed     int64   `json:"seed"`
		Share    float64 `json:"share"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: request.Address, Password: request.Password})
	defer client.Close()
	compression := cacheutil.RedisCompressionType(request.Compress)
	cache := appstate.NewCache(cacheutil.NewCache(cacheutil.NewRedisCache(client, time.Hour, compression)), time.Hour)
	if request.Write {
		fill := filler{rand.New(rand.NewSource(request.Seed)), request.Share}
		var tree v1alpha1.ApplicationTree
		// Nothing at all would be an entry that is taken away.
		managed := []*v1alpha1.ResourceDiff{}
		var info v1alpha1.ClusterInfo
		fill.fill(reflect.ValueOf(&tree).Elem())
		fill.fill(reflect.ValueOf(&managed).Elem())
		fill.fill(reflect.ValueOf(&info).Elem())
		// How many pieces there are is the cache's affair.
		tree.ShardsCount = 0
		err := errors.Join(
			cache.SetAppManagedResources(request.Instance, managed),
			cache.SetAppResourcesTree(request.Instance, &tree),
			cache.SetClusterInfo(request.Server, &info),
		)
		if err != nil {
			return nil, fmt.Errorf("write: %w", err)
		}
		return map[string]any{"tree": tree, "managed": managed, "info": info}, client.Ping(context.Background()).Err()
	}
	var tree v1alpha1.ApplicationTree
	var managed []*v1alpha1.ResourceDiff
	var info v1alpha1.ClusterInfo
	err := errors.Join(
		cache.GetAppManagedResources(request.Instance, &managed),
		cache.GetAppResourcesTree(request.Instance, &tree),
		cache.GetClusterInfo(request.Server, &info),
	)
	return map[string]any{"tree": tree, "managed": managed, "info": info}, err
}
