package ferry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"ankusa.dev/ferry"
)

// Calls that come while a batch runs go together in the next one.
func ExampleBatcher_Do() {
	config := ferry.Default[string]()
	b, err := ferry.New(config, func(_ context.Context, batch []string) ([]ferry.Result[int], error) {
		results := make([]ferry.Result[int], len(batch))
		for i, word := range batch {
			results[i].Value = len(word)
		}
		return results, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	length, err := b.Do(context.Background(), "hawser")
	fmt.Println(length, err)
	fmt.Println(b.Close(context.Background()))
	// Output:
	// 6 <nil>
	// <nil>
}

// Submit needs no goroutine per input, here with one lane per account.
func ExampleBatcher_Submit() {
	type transfer struct {
		account string
		amount  int
	}
	config := ferry.Default[transfer]()
	config.MaxInFlight = 4
	config.MaxWait = time.Millisecond
	config.Lane = func(t transfer) (string, bool) { return t.account, true }

	var mu sync.Mutex
	balance := map[string]int{}
	b, err := ferry.New(config, func(_ context.Context, batch []transfer) ([]ferry.Result[int], error) {
		mu.Lock()
		defer mu.Unlock()
		results := make([]ferry.Result[int], len(batch))
		for i, t := range batch {
			balance[t.account] += t.amount
			results[i].Value = balance[t.account]
		}
		return results, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var steps []string
	for _, amount := range []int{10, -3, 5} {
		err := b.Submit(transfer{"ada", amount}, func(after int, err error) {
			steps = append(steps, fmt.Sprint(after)) // a lane's answers come one at a time
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(b.Close(context.Background()))
	fmt.Println(strings.Join(steps, " "))
	// Output:
	// <nil>
	// 10 7 12
}

// A rejection names the bound and comes at once.
func ExampleRejectedError() {
	config := ferry.Default[int]()
	config.MaxQueuePerGroup = 2
	config.Group = func(int) string { return "tenant" }
	release := make(chan struct{})
	b, err := ferry.New(config, func(_ context.Context, batch []int) ([]ferry.Result[struct{}], error) {
		<-release
		return make([]ferry.Result[struct{}], len(batch)), nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 3 {
		err := b.Submit(i, func(struct{}, error) {})
		var rejected *ferry.RejectedError
		if errors.As(err, &rejected) {
			fmt.Println(i, rejected.Bound)
		}
	}
	close(release)
	fmt.Println(b.Close(context.Background()))
	// Output:
	// 2 MaxQueuePerGroup
	// <nil>
}

// Every fault of a configuration is reported at once.
func ExampleConfig_Validate() {
	fmt.Println(ferry.Config[int]{MaxQueueWeight: 10}.Validate())
	// Output:
	// ferry: config: MaxBatch: is 0, must be at least 1
	// ferry: config: MaxInFlight: is 0, must be at least 1
	// ferry: config: MaxQueue: is 0, must be at least 1 and MaxBatch
	// ferry: config: MaxQueueWeight: needs Weight
}
