package hook

import "time"

// Timestamp is a point of the store's clock, the only clock that decides: milliseconds since the Unix epoch in the
// upper 46 bits, a logical counter in the lower 18.
type Timestamp uint64

const logicalBits = 18

// At is the first timestamp of the millisecond that t falls into.
func At(t time.Time) Timestamp { return FromMillis(t.UnixMilli()) }

// FromMillis is the first timestamp of a millisecond since the Unix epoch; negative milliseconds give zero.
func FromMillis(ms int64) Timestamp {
	if ms < 0 {
		return 0
	}
	return Timestamp(uint64(ms) << logicalBits)
}

// Millis is the millisecond since the Unix epoch that the timestamp falls into.
func (t Timestamp) Millis() int64 { return int64(t >> logicalBits) }

// Time is the reading as a wall clock's, in UTC and whole milliseconds.
func (t Timestamp) Time() time.Time { return time.UnixMilli(t.Millis()).UTC() }

// Add moves the timestamp by the whole milliseconds of d and keeps its logical part; it never goes below zero.
func (t Timestamp) Add(d time.Duration) Timestamp {
	ms := t.Millis() + d.Milliseconds()
	if ms < 0 {
		return 0
	}
	return Timestamp(uint64(ms)<<logicalBits | uint64(t)&(1<<logicalBits-1))
}

// Sub is the distance from o to t in whole milliseconds.
func (t Timestamp) Sub(o Timestamp) time.Duration {
	return time.Duration(t.Millis()-o.Millis()) * time.Millisecond
}
