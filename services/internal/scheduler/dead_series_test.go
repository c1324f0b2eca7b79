package scheduler

import (
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/source"
)

func TestI11_DeadLettersOfManySourcesShareOneSeriesBeyondTheBound(t *testing.T) {
	d, now := newDeadLetters(), time.Unix(1, 0)
	for i := range maxDeadSeries + 50 {
		d.count(strconv.Itoa(i), "http", now)
	}
	d.count("0", "http", now)
	require.Equal(t, maxDeadSeries+1, testutil.CollectAndCount(d.total))
	require.EqualValues(t, 2, testutil.ToFloat64(d.total.WithLabelValues("0", "http")))
	require.EqualValues(t, 50, testutil.ToFloat64(d.total.WithLabelValues(otherSources, "http")))
}

func TestTheSharedSeriesIsNoSources(t *testing.T) {
	_, _, ok := source.SplitID(otherSources)
	require.False(t, ok)
}

func TestASourceWithoutDeadLettersForLongMakesRoomForAnother(t *testing.T) {
	d, now := newDeadLetters(), time.Unix(1, 0)
	for i := range maxDeadSeries {
		d.count(strconv.Itoa(i), "http", now)
	}
	now = now.Add(deadSeriesIdle - time.Second)
	d.count("0", "http", now)
	d.count("early", "http", now)
	require.Equal(t, maxDeadSeries+1, testutil.CollectAndCount(d.total))

	now = now.Add(deadSeriesSweep)
	d.count("late", "http", now)
	require.Equal(t, 3, testutil.CollectAndCount(d.total), "of 0, of late, and of others")
	require.EqualValues(t, 2, testutil.ToFloat64(d.total.WithLabelValues("0", "http")))
	require.EqualValues(t, 1, testutil.ToFloat64(d.total.WithLabelValues("late", "http")))
}
