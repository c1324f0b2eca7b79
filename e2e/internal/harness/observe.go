package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	neturl "net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"ankusa.dev/e2e/internal/history"
)

// DeadLetters reads the whole listing.
func (c *Cluster) DeadLetters(ctx context.Context) ([]history.DeadLetter, error) {
	var all []history.DeadLetter
	cursor := ""
	for {
		var page struct {
			Entries    []history.DeadLetter `json:"entries"`
			NextCursor string               `json:"next_cursor"`
		}
		query := neturl.Values{"limit": {"1000"}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		if err := GetJSON(ctx, c.Admin+"/v1/dlq?"+query.Encode(), &page); err != nil {
			return nil, err
		}
		all = append(all, page.Entries...)
		if cursor = page.NextCursor; cursor == "" {
			return all, nil
		}
	}
}

// GetJSON decodes the answer of a GET, which must be 200.
func GetJSON(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// Sample is one series of a metrics page.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// Scrape reads a metrics page in the text format.
func Scrape(ctx context.Context, url string) ([]Sample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	var samples []Sample
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if line := lines.Text(); line != "" && line[0] != '#' {
			s, err := parseSample(line)
			if err != nil {
				return nil, err
			}
			samples = append(samples, s)
		}
	}
	return samples, lines.Err()
}

func parseSample(line string) (Sample, error) {
	at := strings.LastIndexByte(line, ' ')
	if at < 0 {
		return Sample{}, fmt.Errorf("metric line %q has no value", line)
	}
	value, err := strconv.ParseFloat(line[at+1:], 64)
	if err != nil {
		return Sample{}, fmt.Errorf("metric line %q: %w", line, err)
	}
	name, labels, _ := strings.Cut(line[:at], "{")
	s := Sample{Name: name, Labels: map[string]string{}, Value: value}
	for _, pair := range strings.Split(strings.TrimSuffix(labels, "}"), ",") {
		if key, quoted, ok := strings.Cut(pair, "="); ok {
			s.Labels[key] = strings.Trim(quoted, `"`)
		}
	}
	return s, nil
}

// tick is the unit of processor time in /proc, fixed by the kernel's interface.
const tick = 10 * time.Millisecond

// CPU is the processor time that a process has used so far.
func CPU(pid int) (time.Duration, error) {
	fields, err := procStat(pid)
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for _, i := range []int{11, 12} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time of %d: %w", pid, err)
		}
		total += time.Duration(n) * tick
	}
	return total, nil
}

// procStat returns the kernel's fields of a process from the state on; the name before it may hold anything.
func procStat(pid int) ([]string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	text := string(stat)
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:]), nil
}
