package cluster

import (
	"fmt"
	"net"
	"sync"
)

// given has the addresses that FreeAddress has returned.
var given sync.Map

// FreeAddress returns a loopback address, HOST:PORT, that nobody listens on now, and that it has not returned before:
// who asks for several before listening on the first one needs different ones.
func FreeAddress() (string, error) {
	for {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", fmt.Errorf("finding a free port: %w", err)
		}
		address := listener.Addr().String()
		_ = listener.Close() // nothing was written
		if _, before := given.LoadOrStore(address, true); !before {
			return address, nil
		}
	}
}
