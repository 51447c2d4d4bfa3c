package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// Stored is an object in etcd.
type Stored struct {
	// Cluster is the name of the cluster. Key is the rest of the key in etcd, as in "deployments/default/web" or
	// "example.com/widgets/default/one".
	Cluster, Key string
	// Object is nil if client-go does not know the kind of the object, unless the object is a custom resource.
	Object *unstructured.Unstructured
}

// Change is one change of an object in etcd.
type Change struct {
	// Stored is the object after the change. Object is nil if the object was deleted.
	Stored

	// Deleted reports whether the object was deleted.
	Deleted bool
	// Before is the object before the change. Before is nil if the object was created.
	Before *unstructured.Unstructured
	// Revision is the revision of etcd. All clusters of a host share one sequence of revisions.
	Revision int64
}

// decoder decodes the objects of Kubernetes.
var decoder = func() runtime.Decoder {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	return serializer.NewCodecFactory(s).UniversalDeserializer()
}()

// Observe calls the function each for every change in etcd, of all clusters, in the order of the changes. Changes are
// reported even while API servers are stopped. The function wanted reports whether changes of a key are reported; the
// key has the form of [Stored].Key. Observe returns an error if etcd was compacted before Observe has read a change,
// and nil when the context ends. Observe calls the function ready once, when it is sure to observe all later changes.
func (h *Host) Observe(ctx context.Context, ready func(), wanted func(cluster, key string) bool,
	each func(Change)) error {
	client := v3client.New(h.etcd.Server)
	defer client.Close() //nolint:errcheck // it has no connection
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for answer := range client.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithPrevKV(),
		clientv3.WithCreatedNotify()) {
		if err := answer.Err(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("observing etcd: %w", err)
		}
		if answer.Created {
			ready()
		}
		for _, event := range answer.Events {
			of, key := splitKey(event.Kv.Key)
			if !wanted(of, key) {
				continue
			}
			c := Change{Stored: Stored{Cluster: of, Key: key}, Deleted: event.Type == mvccpb.Event_DELETE,
				Revision: event.Kv.ModRevision}
			if !c.Deleted {
				c.Object = decodeObject(event.Kv.Value)
			}
			if event.PrevKv != nil {
				c.Before = decodeObject(event.PrevKv.Value)
			}
			each(c)
		}
	}
	return nil
}

// Objects returns all objects of a cluster whose keys are wanted, sorted by key. The cluster may be stopped.
func (c *Cluster) Objects(ctx context.Context, wanted func(key string) bool) ([]Stored, error) {
	client := v3client.New(c.host.etcd.Server)
	defer client.Close() //nolint:errcheck // it has no connection
	answer, err := client.Get(ctx, "/"+c.name+"/", clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("reading the objects of %s: %w", c.name, err)
	}
	var all []Stored
	for _, kv := range answer.Kvs {
		if of, key := splitKey(kv.Key); wanted(key) {
			all = append(all, Stored{Cluster: of, Key: key, Object: decodeObject(kv.Value)})
		}
	}
	return all, nil
}

// Compact removes all former versions of objects from etcd. After Compact, lists and watches of API servers that need a
// removed version fail with 410 Gone.
func (h *Host) Compact(ctx context.Context) error {
	client := v3client.New(h.etcd.Server)
	defer client.Close() //nolint:errcheck // it has no connection
	answer, err := client.Get(ctx, "/", clientv3.WithCountOnly())
	if err == nil {
		_, err = client.Compact(ctx, answer.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		return fmt.Errorf("compacting etcd: %w", err)
	}
	return nil
}

// splitKey splits a key of etcd into the name of the cluster and the rest of the key.
func splitKey(key []byte) (cluster, rest string) {
	cluster, rest, _ = strings.Cut(strings.TrimPrefix(string(key), "/"), "/")
	return cluster, rest
}

// decodeObject decodes a stored object. decodeObject returns nil if it cannot.
func decodeObject(data []byte) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if bytes.HasPrefix(data, []byte("{")) {
		if json.Unmarshal(data, &u.Object) == nil {
			return u
		}
		return nil
	}
	object, kind, err := decoder.Decode(data, nil, nil)
	if err != nil {
		return nil
	}
	if u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(object); err != nil {
		return nil
	}
	u.SetGroupVersionKind(*kind)
	return u
}
