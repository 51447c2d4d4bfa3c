package fleet

import (
	"flag"
	"io"
	"os"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	flag.Parse()
	klog.LogToStderr(false) // the handlers announce each group
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// waitFor waits until the function is() returns true.
func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}
