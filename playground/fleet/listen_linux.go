package fleet

import (
	"context"
	"net"
	"syscall"
)

// sharedNetwork is true where the loopback device has every address of 127.0.0.0/8.
const sharedNetwork = true

// listenShared opens one port on all addresses of the loopback device, and on no other device.
func listenShared(ctx context.Context) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		if err := raw.Control(func(fd uintptr) {
			failed = syscall.SetsockoptString(int(fd), syscall.SOL_SOCKET, syscall.SO_BINDTODEVICE, "lo")
		}); err != nil {
			return err
		}
		return failed
	}}
	return config.Listen(ctx, "tcp4", "0.0.0.0:0")
}
