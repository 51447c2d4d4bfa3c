//go:build !linux

package fleet

import (
	"context"
	"net"
)

// sharedNetwork reports whether every address of 127.0.0.0/8 is there.
const sharedNetwork = false

func listenShared(context.Context) (net.Listener, error) { return nil, errListen }
