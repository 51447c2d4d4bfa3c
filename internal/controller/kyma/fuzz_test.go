package kyma

import (
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/runtimekyma"
)

// FuzzRemote decodes fuzzed data as the Kyma from a runtime, and encodes the last request: the annotation that stores
// the requested modules in the control plane. FuzzRemote checks two limits: the memory for decoding is limited by the
// number of JSON values in the data, and the size of the annotation is limited by lastRequestLimit.
func FuzzRemote(f *testing.F) {
	schema, err := runtimekyma.New()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"spec":{"channel":"regular","modules":[`, `{"name":"a","channel":"fast"},`, `{}]}}`, uint16(250))
	f.Add(`{"spec":{"modules":[`, `{"customResourcePolicy":"","managed":null},`, `{}]}}`, uint16(5000))
	f.Add(`{"metadata":{"annotations":{`, `"\ud800":"",`, `"a":""}}}`, uint16(5000))
	f.Add(`{"status":{"conditions":[`, `{"lastTransitionTime":"2020-01-01T00:00:00Z"},`, `{}]}}`, uint16(5000))
	f.Add(`{"spec":`, `[`, ``, uint16(20_000))
	f.Fuzz(func(t *testing.T, start, repeated, end string, n uint16) {
		n = min(n, uint16(min(1<<16-1, 1<<20/max(1, len(repeated)))))
		text := start + strings.Repeat(repeated, int(n)) + end
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		u := &unstructured.Unstructured{}
		if utiljson.Unmarshal([]byte(text), &u.Object) != nil {
			return
		}
		k, err := schema.Decode(u)
		if err == nil {
			if stored := encodeLastRequestIfNeeded(&v1beta2.Kyma{}, k); len(stored) > lastRequestLimit {
				t.Errorf("%d bytes are stored", len(stored))
			}
		}
		runtime.ReadMemStats(&after)
		values := strings.Count(text, "{") + strings.Count(text, "[") + strings.Count(text, ",")
		if used, limit := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+32*(len(text)+100*values)); used > limit {
			t.Errorf("%d bytes were allocated for %d bytes; the limit is %d", used, len(text), limit)
		}
	})
}
