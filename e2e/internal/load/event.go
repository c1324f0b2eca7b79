// Package load plays the providers: it sends webhooks that are signed by the providers' own libraries and writes down
// every answer.
package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	stripe "github.com/stripe/stripe-go/v82/webhook"
)

// Event is what a provider sends, once or again and again until it is told that the event is safe.
type Event struct {
	// Path is the source as the URL names it.
	Path string
	// Source is the source_id.
	Source string
	// Key is the provider's event key where the source deduplicates.
	Key string
	// Ordered: the source delivers in lanes, and the event is of this one.
	Ordered bool
	Lane    string
	Header  http.Header
	Body    []byte
}

// Mark stands in every body that this package makes, so that a body is known where it must not be.
const Mark = "mark-of-a-body"

// Maker makes the events of one provider. The bodies of two events are never equal.
type Maker func(seq int) (Event, error)

// Plain sends unsigned binary bodies of about size bytes, with every byte value in them.
func Plain(source string, size int) Maker {
	return func(seq int) (Event, error) {
		var b bytes.Buffer
		fmt.Fprintf(&b, "%s-%d %s\x00", source, seq, Mark)
		for i := 0; b.Len() < size; i++ {
			b.WriteByte(byte(i + seq))
		}
		return Event{
			Path: source, Source: source, Body: b.Bytes(),
			Header: http.Header{"Content-Type": {"application/octet-stream"}},
		}, nil
	}
}

// InLanes makes another's events those of an ordered source, lane by lane in turn, whose key is the header X-Entity. An
// empty lane is sent without the header.
func InLanes(maker Maker, lanes ...string) Maker {
	return func(seq int) (Event, error) {
		e, err := maker(seq)
		e.Ordered, e.Lane = true, lanes[seq%len(lanes)]
		if err == nil && e.Lane != "" {
			e.Header.Set("X-Entity", e.Lane)
		}
		return e, err
	}
}

// Stripe sends events that stripe-go signs, for a source that deduplicates by the event's id.
func Stripe(source, secret string) Maker {
	return func(seq int) (Event, error) {
		key := fmt.Sprintf("evt_%s_%d", source, seq)
		body, err := document(map[string]any{"id": key, "object": "event", "mark": Mark, "data": text(seq)})
		if err != nil {
			return Event{}, err
		}
		signed := stripe.GenerateTestSignedPayload(&stripe.UnsignedPayload{Payload: body, Secret: secret, Timestamp: time.Now()})
		return Event{Path: source, Source: source, Key: key, Body: body, Header: http.Header{
			"Content-Type": {"application/json; charset=utf-8"}, "Stripe-Signature": {signed.Header},
		}}, nil
	}
}

// StandardWebhooks sends events that the reference library signs, for a source that deduplicates by webhook-id. Every
// third body is no text.
func StandardWebhooks(source, secret string) (Maker, error) {
	wh, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, err
	}
	return func(seq int) (Event, error) {
		id := fmt.Sprintf("msg_%s_%d", source, seq)
		body, err := document(map[string]any{"type": "user.created", "seq": seq, "mark": Mark, "data": text(seq)})
		if seq%3 == 2 {
			body = append(body, 0xff, 0xfe, 0x00, byte(seq))
		}
		if err != nil {
			return Event{}, err
		}
		now := time.Now()
		signature, err := wh.Sign(id, now, body)
		if err != nil {
			return Event{}, err
		}
		return Event{Path: source, Source: source, Key: id, Body: body, Header: http.Header{
			"Content-Type": {"application/json"}, "Webhook-Id": {id},
			"Webhook-Timestamp": {fmt.Sprint(now.Unix())}, "Webhook-Signature": {signature},
		}}, nil
	}, nil
}

// text varies with seq: plain, combining, right-to-left, astral, and long.
func text(seq int) string {
	switch seq % 5 {
	case 0:
		return "plain <b>&amp;</b> text"
	case 1:
		return "e\u0301 \u00e9 \u05d0\u05d1 \u0000 \u2028"
	case 2:
		return "\U0001F409\U0001F9D1\u200D\U0001F680 \U00020BB7\U0001D11E"
	case 3:
		return strings.Repeat("\U0001F4BE long ", 2000)
	default:
		return ""
	}
}

// document is JSON with the characters themselves, as providers send them, not escapes.
func document(v map[string]any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("make event: %w", err)
	}
	return b.Bytes(), nil
}
