package main

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

// pulseGap is the time between two measurements of the reference work.
const pulseGap = 250 * time.Millisecond

// reference is the reference work: a fixed piece of work that takes a few milliseconds. The reference work consists of
// the main operations of a manager: it processes JSON, encrypts, computes digests, and reads memory that is in no
// processor cache. The duration of the reference work shows how fast the processor is during a scenario. The ratio of
// another processor time to this duration can be compared between machines, even if one of them is busy.
type reference struct {
	text   bytes.Buffer
	packed bytes.Buffer
	sealer cipher.AEAD
	sealed []byte
	walk   []uint32 // each element is the index of the next one; all elements form one ring
	at     uint32
}

func newReferenceWorkload() (*reference, error) {
	block, err := aes.NewCipher(make([]byte, 32))
	if err != nil {
		return nil, fmt.Errorf("preparing the reference work: %w", err)
	}
	w := &reference{walk: make([]uint32, 1<<20)}
	if w.sealer, err = cipher.NewGCM(block); err != nil {
		return nil, fmt.Errorf("preparing the reference work: %w", err)
	}
	w.text.WriteString("[ ")
	for i := range 200 {
		fmt.Fprintf(&w.text, "{ %q: %d , %q : [ true, null, %q ] } , ", "number", i, "some",
			strings.Repeat("text ", 20))
	}
	w.text.WriteString("{} ]")
	w.packed.Grow(w.text.Len())
	w.sealed = make([]byte, 0, w.text.Len()+w.sealer.Overhead())
	const stride = 514_229 // odd, so the ring contains every element
	for i := range w.walk {
		w.walk[i] = uint32((i + stride) % len(w.walk)) //nolint:gosec // less than 2^20
	}
	return w, nil
}

// runOnce does the reference work once. runOnce allocates no memory, because garbage collection would add to the
// measured time.
func (w *reference) runOnce() {
	nonce := make([]byte, w.sealer.NonceSize())
	for range 4 {
		w.packed.Reset()
		_ = json.Compact(&w.packed, w.text.Bytes()) // the JSON is valid
		//nolint:gosec // it protects nothing: it is work
		w.sealed = w.sealer.Seal(w.sealed[:0], nonce, w.packed.Bytes(), nil)
		sum := sha256.Sum256(w.sealed)
		nonce[0] ^= sum[0]
		for range 20_000 {
			w.at = w.walk[w.at]
		}
	}
}

// startReferenceWorkload does the reference work at intervals of pulseGap until stop is called. stop returns the
// processor time of one piece of the work.
func startReferenceWorkload(ctx context.Context) (stop func() time.Duration, err error) {
	w, err := newReferenceWorkload()
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	var group sync.WaitGroup
	var spent time.Duration
	times := 0
	group.Go(func() {
		runtime.LockOSThread() // the processor time of this thread is measured
		defer runtime.UnlockOSThread()
		tick := time.NewTicker(pulseGap)
		defer tick.Stop()
		w.runOnce()
		for {
			begin := threadCPUTime()
			w.runOnce()
			spent, times = spent+threadCPUTime()-begin, times+1
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() time.Duration {
		end()
		group.Wait()
		return spent / time.Duration(times)
	}, nil
}
