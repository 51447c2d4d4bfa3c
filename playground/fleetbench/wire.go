package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// wire is a connection to the listener. wire sends one request after the other, with a minimal implementation of
// HTTP/1.1. An idle wire has no goroutine.
type wire struct {
	conn    *tls.Conn
	answers *bufio.Reader
}

// pieceSize is the maximum size of a TLS record that a wire sends, in bytes. The real agent sends TLS records of the
// same maximum size.
const pieceSize = 1 << 10

// answerTimeout is the timeout of one request, and of a handshake.
const answerTimeout = time.Minute

// answer holds the needed parts of an HTTP answer.
type answer struct {
	status   int
	instance string // identifies the process that answered
	wait     time.Duration
	next     time.Duration // time until the next heartbeat
	closes   bool
}

// dial connects to the listener.
func dial(ctx context.Context, address string, config *tls.Config) (*wire, error) {
	d := &tls.Dialer{NetDialer: &net.Dialer{Timeout: answerTimeout}, Config: config}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connecting to the listener: %w", err)
	}
	secured := c.(*tls.Conn)
	return &wire{conn: secured, answers: bufio.NewReaderSize(secured, 1024)}, nil
}

// post sends a body and reads the answer.
func (w *wire) post(path string, body []byte) (a answer, err error) {
	if err := w.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return a, fmt.Errorf("posting to the listener: %w", err)
	}
	request := make([]byte, 0, 256+len(body))
	request = fmt.Appendf(request,
		"POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: fleetbench\r\nContent-Type: application/json\r\nContent-Length: "+
			"%d\r\n\r\n%s", path, listenerName, len(body), body)
	for piece := range slices.Chunk(request, pieceSize) {
		if _, err := w.conn.Write(piece); err != nil {
			return a, fmt.Errorf("posting to the listener: %w", err)
		}
	}
	line, err := w.answers.ReadSlice('\n')
	if err != nil || len(line) < 12 {
		return a, fmt.Errorf("reading the listener's answer: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	if a.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return a, fmt.Errorf("reading the listener's answer: %w", err)
	}
	length, err := w.readHeaders(&a)
	if err != nil {
		return a, fmt.Errorf("reading the listener's answer: %w", err)
	}
	if _, err := w.answers.Discard(length); err != nil {
		return a, fmt.Errorf("reading the listener's answer: %w", err)
	}
	return a, nil
}

// readHeaders reads the headers of an HTTP answer, stores the needed ones in the struct answer, and returns the length
// of the body.
func (w *wire) readHeaders(a *answer) (length int, err error) {
	for {
		line, err := w.answers.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			return length, nil
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch string(name) {
		case "Content-Length":
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		case "Transfer-Encoding":
			return 0, errors.New("an answer in chunks is not expected")
		case "Connection":
			a.closes = string(value) == "close"
		case "Retry-After":
			if seconds, err := strconv.Atoi(string(value)); err == nil {
				a.wait = time.Duration(seconds) * time.Second
			}
		case protocol.HeaderNextHeartbeat:
			if seconds, err := strconv.Atoi(string(value)); err == nil {
				a.next = time.Duration(seconds) * time.Second
			}
		case protocol.HeaderInstance:
			a.instance = string(value)
		}
	}
}

func (w *wire) close() { _ = w.conn.Close() } // the connection is no longer used, so an error does not matter
