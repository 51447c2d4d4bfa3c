package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

const (
	connecting = 16 // concurrent handshakes
	under      = 64 // concurrent events in the measurement most
	flooding   = 16 // connections of the runtime that floods
	beats      = 5  // number of heartbeats of each agent
)

// agent is a simulated agent with one open connection.
type agent struct {
	*tls.Conn
	answers   *bufio.Reader
	event     []byte // encoded requests
	heartbeat []byte
	taken     int // size of the last answer in bytes
}

// record is the number of bytes that TLS 1.3 adds to the data of a record.
const record = 22

func connectAgent(address string, config *tls.Config) (*agent, error) {
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 30 * time.Second}, "tcp", address, config)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return &agent{
		Conn: c, answers: bufio.NewReaderSize(c, 1024),
		event: encodePost(protocol.EventPath(protocol.ManagerName),
			`{"watched":{"Namespace":"kyma-system","Name":"default"},"watchedGvk":{"group":"operator.kyma-project.io","version":"v1beta2","kind":"Kyma"},`+
				`"boot":"b1946ac92492d2347c6235b4","resource":"kymas","object":{"uid":"5d4f3c9e-6a0b-4a57-9d5e-0c3a7c2f1b11","resourceVersion":"123456","generation":7,"labels":{"operator.kyma-project.io/watched-by":"kyma"}}}`),
		heartbeat: encodePost(protocol.HeartbeatPath(protocol.ManagerName),
			`{"boot":"b1946ac92492d2347c6235b4","version":"1.0.0","sequence":7,"pending":0,"watchlist":"0123456789abcdef"}`),
	}, nil
}

func encodePost(path, body string) []byte {
	return []byte("POST " + path + " HTTP/1.1\r\nHost: " + serverName +
		"\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(
		len(body)) + "\r\n\r\n" + body)
}

// send sends a request and reads the answer.
func (a *agent) send(request []byte) (status int, err error) {
	if _, err := a.Write(request); err != nil {
		return 0, fmt.Errorf("sending: %w", err)
	}
	line, err := a.answers.ReadSlice('\n')
	if err != nil || len(line) < 12 {
		return 0, fmt.Errorf("reading an answer: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, fmt.Errorf("reading an answer: %w", err)
	}
	length := 0
	a.taken = len(line)
	for {
		if line, err = a.answers.ReadSlice('\n'); err != nil {
			return 0, fmt.Errorf("reading an answer: %w", err)
		}
		a.taken += len(line)
		if name, value, ok := bytes.Cut(line, []byte(": ")); ok && string(name) == "Content-Length" {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, fmt.Errorf("reading an answer: %w", err)
			}
		}
		if len(line) == 2 {
			_, err := a.answers.Discard(length)
			a.taken += length
			return status, err
		}
	}
}

// bench is the process of the listener with its agents.
type bench struct {
	listener *process
	order    order
	pairs    []pair
	agents   []*agent
	flood    pair
}

// measure runs one round.
func measure(ctx context.Context, length time.Duration) (round Round, err error) {
	b, err := startListenerAndIssueCerts(ctx)
	if err != nil {
		return round, err
	}
	defer func() {
		for _, a := range b.agents {
			if a != nil {
				_ = a.Close() // the connection is no longer needed
			}
		}
		err = errors.Join(err, b.listener.stop())
	}()
	before, err := b.listener.requestReport()
	if err != nil {
		return round, err
	}
	if round.Connect, err = b.measureLoad(b.connectAgents); err != nil {
		return round, err
	}
	after, err := b.listener.requestReport()
	if err != nil {
		return round, err
	}
	round.IdleBytes = int(after.InUse-min(after.InUse, before.InUse)) / agents //nolint:gosec // some megabytes
	steady := func(rate int) func(*tally) error {
		return func(t *tally) error { return b.sendAtRate(ctx, t, rate, length) }
	}
	steps := []struct {
		into *Load
		load func(*tally) error
	}{
		{&round.Steady, steady(offered)},
		{&round.Most, func(t *tally) error { return b.sendAsManyAsPossible(ctx, t, length) }},
		{&round.Alone, steady(agents)},
		{&round.Flooded, func(t *tally) error {
			var err error
			round.Flood, err = b.runInFlood(ctx, t, steady(agents))
			return err
		}},
		{&round.Heartbeats, b.sendHeartbeats},
	}
	for _, s := range steps {
		if *s.into, err = b.measureLoad(s.load); err != nil {
			return round, err
		}
	}
	after, err = b.listener.requestReport()
	if err != nil {
		return round, err
	}
	if want := round.Steady.Taken + round.Most.Taken + round.Alone.Taken + round.Flooded.Taken +
		round.Flood[200]; after.Delivered != int64(want) {
		return round, fmt.Errorf("%d events were answered with 200, but %d were delivered", want, after.Delivered)
	}
	last := b.agents[0]
	round.HeartbeatBytes = len(last.heartbeat) + last.taken + 2*record
	return round, nil
}

// startListenerAndIssueCerts starts the listener and makes the certificates.
func startListenerAndIssueCerts(ctx context.Context) (*bench, error) {
	authority, err := newAuthority()
	if err != nil {
		return nil, err
	}
	b := &bench{order: order{Root: authority.root.Raw}, agents: make([]*agent, agents)}
	if b.order.Own, err = authority.issue(serverName); err != nil {
		return nil, err
	}
	for i := range agents {
		p, err := authority.issue(agentName(i))
		if err != nil {
			return nil, err
		}
		b.pairs = append(b.pairs, p)
	}
	if b.flood, err = authority.issue(floodName); err != nil {
		return nil, err
	}
	if b.listener, err = startProcess(ctx, roleListener, b.order); err != nil {
		return nil, err
	}
	for { // until the listener accepts connections
		said, err := b.listener.requestReport()
		if err != nil {
			return nil, errors.Join(err, b.listener.stop())
		}
		if b.order.Address = said.Address; said.Address != "" {
			return b, nil
		}
	}
}

// tally records the results of the requests of a load.
type tally struct {
	mu      sync.Mutex
	delays  []time.Duration // guarded by mu
	refused int             // guarded by mu
}

func (t *tally) add(status int, delay time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if status != 200 {
		t.refused++
		return
	}
	t.delays = append(t.delays, delay)
}

// measureLoad runs a load and measures it.
func (b *bench) measureLoad(load func(*tally) error) (Load, error) {
	before, err := b.listener.requestReport()
	if err != nil {
		return Load{}, err
	}
	t := &tally{delays: make([]time.Duration, 0, 1<<18)}
	start, own := time.Now(), processorTime()
	if err := load(t); err != nil {
		return Load{}, err
	}
	took, own := time.Since(start), processorTime()-own
	after, err := b.listener.requestReport()
	if err != nil {
		return Load{}, err
	}
	slices.Sort(t.delays)
	n := len(t.delays)
	if n == 0 {
		return Load{}, errors.New("nothing was answered with 200")
	}
	all := float64(n + t.refused)
	millis := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return Load{
		PerSecond: float64(n) / took.Seconds(), Taken: n, Refused: t.refused,
		P50: millis(t.delays[n/2]), P99: millis(t.delays[n*99/100]), Most: millis(t.delays[n-1]),
		ListenerCPU: float64((after.CPU - before.CPU).Microseconds()) / all,
		AgentsCPU:   float64(own.Microseconds()) / all,
		Bytes:       float64(after.Bytes-before.Bytes) / all, Allocations: float64(after.Mallocs-before.Mallocs) / all,
	}, nil
}

// connectAgents opens the connections of all agents.
func (b *bench) connectAgents(t *tally) error {
	return runParallel(connecting, agents, func(i int) error {
		config, err := b.order.clientConfig(b.pairs[i])
		if err != nil {
			return err
		}
		start := time.Now()
		a, err := connectAgent(b.order.Address, config)
		if err != nil {
			return err
		}
		b.agents[i] = a
		status, err := a.send(a.heartbeat) // the first request completes the handshake of TLS 1.3
		t.add(status, time.Since(start))
		return err
	})
}

// runParallel calls work with the numbers 0 to n-1, in parallel goroutines.
func runParallel(workers, n int, work func(int) error) error {
	var (
		next  atomic.Int64
		group sync.WaitGroup
		errs  = make([]error, workers)
	)
	for w := range workers {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && errs[w] == nil; i = next.Add(1) - 1 {
				errs[w] = work(int(i))
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// sendAtRate sends events of all agents at a fixed rate. The agents take turns.
func (b *bench) sendAtRate(ctx context.Context, t *tally, rate int, length time.Duration) error {
	start := time.Now()
	return runParallel(agents, agents, func(i int) error {
		timer := time.NewTimer(0)
		defer timer.Stop()
		period := time.Second * agents / time.Duration(rate)
		for due := start.Add(period * time.Duration(i) / agents); due.Sub(start) < length; due = due.Add(period) {
			timer.Reset(time.Until(due))
			select {
			case <-timer.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			status, err := b.agents[i].send(b.agents[i].event)
			if err != nil {
				return err
			}
			t.add(status, time.Since(due))
		}
		return nil
	})
}

// sendAsManyAsPossible sends as many events as the listener accepts.
func (b *bench) sendAsManyAsPossible(ctx context.Context, t *tally, length time.Duration) error {
	end := time.Now().Add(length)
	return runParallel(under, under, func(worker int) error {
		for i := worker; time.Now().Before(end) && ctx.Err() == nil; i += under {
			if i >= agents {
				i = worker
			}
			start := time.Now()
			status, err := b.agents[i].send(b.agents[i].event)
			if err != nil {
				return err
			}
			t.add(status, time.Since(start))
		}
		return context.Cause(ctx)
	})
}

// sendHeartbeats sends several heartbeats from each agent; beats is the number of heartbeats.
func (b *bench) sendHeartbeats(t *tally) error {
	return runParallel(under, beats*agents, func(i int) error {
		a := b.agents[i%agents]
		start := time.Now()
		status, err := a.send(a.heartbeat)
		t.add(status, time.Since(start))
		return err
	})
}

// runInFlood runs a load while another runtime sends as many requests as it can. floodAnswers has the number of answers
// to the other runtime, by status.
func (b *bench) runInFlood(ctx context.Context, t *tally, load func(*tally) error) (floodAnswers map[int]int,
	err error) {
	o := b.order
	o.Own = b.flood
	p, err := startProcess(ctx, roleFlood, o)
	if err != nil {
		return nil, err
	}
	if err := load(t); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	_ = p.stdin.Close() // the flood ends with its input
	if err := p.answers.Decode(&floodAnswers); err != nil {
		return nil, fmt.Errorf("asking the flood: %w", errors.Join(err, p.stop()))
	}
	return floodAnswers, p.stop()
}

// flood runs the process of a runtime that sends too many requests.
func flood(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	input := bufio.NewReader(stdin)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, input) // wait until the input is closed
		stop()
	}()
	config, err := o.clientConfig(o.Own)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	answers := map[int]int{}
	if err := runParallel(flooding, flooding, func(int) error {
		a, err := connectAgent(o.Address, config)
		if err != nil {
			return err
		}
		defer func() { _ = a.Close() }()
		for ctx.Err() == nil {
			status, err := a.send(a.event)
			if err != nil {
				return err
			}
			mu.Lock()
			answers[status]++
			mu.Unlock()
		}
		return nil
	}); err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(answers)
}
