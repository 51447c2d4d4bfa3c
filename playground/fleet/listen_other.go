//go:build !linux

package fleet

import (
	"context"
	"net"
)

// sharedNetwork is true where the loopback device has every address of 127.0.0.0/8.
const sharedNetwork = false

func listenShared(context.Context) (net.Listener, error) { return nil, errListen }
