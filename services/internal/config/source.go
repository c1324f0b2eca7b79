package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"ankusa.dev/services/internal/egress"
	"ankusa.dev/services/internal/source"
)

// Sources are the sources of a file, in the order of their keys.
type Sources []*source.Source

// sources reads and judges the sources of the file by the rules of the rest of it.
func (d *decoder) sources(n *node, c *Config) {
	list, err := source.DecodeAll("sources", plain(n), c.SourceRules())
	d.addSourceFaults(err)
	c.Sources = list
	policy := c.EgressPolicy()
	offline := func(url string) error { // a file is judged without the network
		_, err := policy.CheckURL(url)
		return err
	}
	for i, key := range n.keys() { // the order of DecodeAll
		for _, f := range egressFaults(list[i], offline) {
			if at := "sources." + key + "." + f.Key; !d.has(at) {
				d.add(at, 0, "%s", f.Problem)
			}
		}
	}
}

func (d *decoder) addSourceFaults(err error) {
	var found source.Faults
	if errors.As(err, &found) {
		for _, f := range found {
			d.add(f.Key, 0, "%s", f.Problem)
		}
	}
}

// keys of a mapping, sorted.
func (n *node) keys() []string {
	keys := make([]string, len(n.entries))
	for i, e := range n.entries {
		keys[i] = e.key
	}
	slices.Sort(keys)
	return keys
}

// SourceRules are what the rest of the file demands of every source.
func (c Config) SourceRules() source.Rules {
	return source.Rules{TenantFromURL: c.HTTP.Routing == RoutingTenantPath}
}

// EgressPolicy is what HTTP sinks may reach.
func (c Config) EgressPolicy() *egress.Policy {
	return egress.New(egress.Config{
		AllowHTTP: c.Egress.AllowHTTP, AllowCIDRs: c.Egress.AllowCIDRs, DenyCIDRs: c.Egress.DenyCIDRs, Ports: c.Egress.Ports,
	})
}

// resolveTime bounds the look-ups of one source's names.
const resolveTime = 2 * time.Second

// CheckEgress returns the judgement that a source's URLs get when it is written, on the addresses to which their names
// lead then. Its error is of type source.Faults: it names the sinks and the rules that they break, never the URLs. It
// takes at most 2 s; a name that does not resolve in that time is left to the dialer.
func (c Config) CheckEgress(r egress.Resolver) func(*source.Source) error {
	policy := c.EgressPolicy()
	return func(s *source.Source) error {
		ctx, cancel := context.WithTimeout(context.Background(), resolveTime)
		defer cancel()
		found := egressFaults(s, func(url string) error { return policy.CheckResolved(ctx, r, url) })
		if len(found) > 0 {
			return found
		}
		return nil
	}
}

// egressRules say what a URL must be, and the key that allows more.
var egressRules = map[egress.Rule]string{
	egress.RuleURL:     "an absolute URL of a host, without user information",
	egress.RuleScheme:  "https, or http where egress.allow_http is true",
	egress.RulePort:    "a port of egress.ports",
	egress.RuleAddress: "a public address or one of egress.allow_cidrs, and none of egress.deny_cidrs",
}

func egressFaults(s *source.Source, judge func(url string) error) source.Faults {
	var found source.Faults
	for i, sink := range s.Sinks {
		if sink.Type != source.SinkHTTP || sink.HTTP.URL == "" {
			continue
		}
		var denied *egress.DeniedError
		if errors.As(judge(sink.HTTP.URL), &denied) {
			found = append(found, source.Fault{
				Key:     fmt.Sprintf("sinks.%d.url", i),
				Problem: "must be allowed by egress: " + egressRules[denied.Rule],
			})
		}
	}
	return found
}

// plain is the tree as package source takes it.
func plain(n *node) any {
	switch n.kind {
	case kindMap:
		out := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			out[e.key] = plain(e.value)
		}
		return out
	case kindList:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			out[i] = plain(item)
		}
		return out
	default:
		return n.scalar()
	}
}

func (n *node) scalar() any {
	switch {
	case n.variable:
		return source.Text(n.text)
	case n.kind == kindNull:
		return nil
	case n.kind == kindBool:
		return n.text == "true"
	case n.kind == kindWhole:
		return json.Number(n.text)
	case n.kind == kindFloat:
		f, err := strconv.ParseFloat(strings.ReplaceAll(n.text, "_", ""), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return n.text
		}
		return f
	default:
		return n.text
	}
}

// redacted shows the sources by their key, as the file does.
func (s Sources) redacted() map[string]any {
	out := make(map[string]any, len(s))
	for _, one := range s {
		out[one.ID()] = one.Redacted()
	}
	return out
}
