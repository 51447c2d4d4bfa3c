package gate

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// NotificationRetryInterval is the time after which a webhook that did not accept a notification is notified again.
const NotificationRetryInterval = 5 * time.Minute

// Notifier sends notifications to webhooks, in goroutines of its own. Notifier is safe for concurrent use.
type Notifier struct {
	reader  *Reader
	changed func(module string)
	queue   workqueue.TypedInterface[string] // keys of requested notifications; one worker at a time has a key

	mu      sync.Mutex
	entries map[string]*delivery // guarded by mu
}

// Notification is a message for a webhook.
type Notification struct {
	Module string // the module that the message is about
	ID     string // identifies what is announced, such as a version; a notification is delivered once for each ID
	URL    string // the address of the webhook
	Body   []byte // JSON
}

// delivery is a notification and the result of the last attempt to deliver it.
type delivery struct {
	Notification
	isPending bool      // an attempt was requested and has not ended
	ended     time.Time // when the last attempt ended; zero: none has ended
	err       error     // of the last attempt
}

// NewNotifier returns a Notifier that sends requests with the given Reader. The Notifier calls the function changed
// after each attempt, with the module of the notification.
func NewNotifier(reader *Reader, changed func(module string)) *Notifier {
	return &Notifier{reader: reader, changed: changed, entries: map[string]*delivery{},
		queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{})}
}

// Deliver requests the delivery of a notification, and does not wait for it. Deliver reports whether the webhook has
// accepted the notification with this ID, and returns the error of the last attempt. After an error, Deliver has to be
// called again after NotificationRetryInterval. The parameter key identifies the subject of the notification: a
// notification with another ID replaces the former one.
func (n *Notifier) Deliver(key string, m Notification) (isDelivered bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.entries[key]
	if e == nil || e.ID != m.ID || e.URL != m.URL {
		e = &delivery{}
		n.entries[key] = e
	}
	isDue := e.ended.IsZero() || e.err != nil && time.Since(e.ended) >= NotificationRetryInterval
	if isDue && !e.isPending {
		e.Notification, e.isPending = m, true
		n.queue.Add(key)
	}
	return !e.ended.IsZero() && e.err == nil, e.err
}

// Start sends the requested notifications until the context ends.
func (n *Notifier) Start(ctx context.Context) error {
	processQueue(ctx, n.queue, n.send)
	return nil
}

// send makes one attempt to deliver a notification, if an attempt is requested.
func (n *Notifier) send(ctx context.Context, key string) {
	n.mu.Lock()
	e := n.entries[key]
	if e == nil || !e.isPending {
		n.mu.Unlock()
		return
	}
	m := e.Notification
	n.mu.Unlock()
	withTimeout, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var answer any
	err := n.reader.Send(withTimeout, http.MethodPost, m.URL, m.Body, &answer)
	if ctx.Err() != nil {
		return
	}
	n.mu.Lock()
	e.isPending, e.ended, e.err = false, time.Now(), err
	n.mu.Unlock()
	n.changed(m.Module)
}
