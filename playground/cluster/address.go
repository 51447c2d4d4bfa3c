package cluster

import (
	"fmt"
	"net"
	"sync"
)

// The variable given contains the addresses that FreeAddress has returned.
var given sync.Map

// FreeAddress returns a loopback address, HOST:PORT, on which no process listens now. FreeAddress never returns the
// same address twice. A caller can therefore request several addresses before it listens on the first one.
func FreeAddress() (string, error) {
	for {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", fmt.Errorf("finding a free port: %w", err)
		}
		address := listener.Addr().String()
		_ = listener.Close() // no data was written
		if _, before := given.LoadOrStore(address, true); !before {
			return address, nil
		}
	}
}
