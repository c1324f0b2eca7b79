package httpsink

import (
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAMemoMakesAThingOnceAndForgetsBeforeItGrowsTooLarge(t *testing.T) {
	var m memo[int, string]
	made := map[int]int{}
	text := func(k int) (string, error) {
		made[k]++
		return strconv.Itoa(k), nil
	}
	for range 3 {
		got, err := m.of(7, text)
		require.NoError(t, err)
		require.Equal(t, "7", got)
	}
	require.Equal(t, 1, made[7])
	for k := range 10 * maxMemo {
		_, err := m.of(k, text)
		require.NoError(t, err)
		require.LessOrEqual(t, len(m.known), maxMemo)
	}
}

func TestAMemoAsksAgainAfterAFailure(t *testing.T) {
	var m memo[string, int]
	_, err := m.of("a", func(string) (int, error) { return 0, errors.New("not yet") })
	require.Error(t, err)
	got, err := m.of("a", func(string) (int, error) { return 1, nil })
	require.NoError(t, err)
	require.Equal(t, 1, got)
}
