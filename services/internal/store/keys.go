package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// The key layout. A key is a space (the cluster's, or one partition's), a family, and the family's own parts. Texts are
// escaped and terminated so that they sort as their bytes do and none is the prefix of another; numbers are big endian.
const (
	clusterSpace   byte = 0
	partitionSpace byte = 1 // of partition 0; partition p is partitionSpace+p
)

// MaxPartitions bounds the partitions of a cluster.
const MaxPartitions = 253

// FenceSlots is the number of fences, and so of transactions of the leader that can run at once, in a partition.
const FenceSlots = 4

// Families of a partition. The fence sorts first, so that it is the primary key of each of the leader's transactions.
const (
	famFence byte = iota + 1
	famEpoch
	famCounter
	famDue
	famLane
	famDead
	famDeadTime
	famHook
	famBody
	famObligation
	famDedupe
	famExpiry
	famEvent
	famHistory
)

// Families of the cluster's space.
const (
	famCluster byte = iota + 1
	famLeader
	famSource
	famGuard
	famWriter
	famRunner
	famProbe
	famJob
)

var errBadKey = errors.New("malformed key")

// Slot names one fence: what it guards commits one transaction at a time.
type Slot struct {
	Partition uint8
	Index     uint8
}

// SlotOf is the fence that guards a tenant's rows in a partition.
func SlotOf(partition uint8, tenant string) Slot {
	return Slot{partition, uint8(hash(tenant, 1) % FenceSlots)}
}

func hash(s string, salt byte) uint32 {
	h := fnv.New32a()
	h.Write([]byte{salt})
	h.Write([]byte(s))
	return h.Sum32()
}

type key []byte

func clusterKey(family byte) key { return append(make(key, 0, 64), clusterSpace, family) }

func partitionKey(partition, family byte) key {
	return append(make(key, 0, 80), partitionSpace+partition, family)
}

func (k key) text(s string) key {
	for i := range len(s) {
		if s[i] == 0 {
			k = append(k, 0, 0xff)
			continue
		}
		k = append(k, s[i])
	}
	return append(k, 0, 1)
}

func (k key) u8(v uint8) key             { return append(k, v) }
func (k key) u16(v uint16) key           { return binary.BigEndian.AppendUint16(k, v) }
func (k key) u32(v uint32) key           { return binary.BigEndian.AppendUint32(k, v) }
func (k key) u64(v uint64) key           { return binary.BigEndian.AppendUint64(k, v) }
func (k key) ts(t hook.Timestamp) key    { return k.u64(uint64(t)) }
func (k key) id(id hook.ID) key          { return append(k, id[:]...) }
func (k key) raw(b []byte) key           { return append(k, b...) }
func (k key) sinkKey(s hook.SinkKey) key { return k.text(s.Tenant).sink(s) }
func (k key) sink(s hook.SinkKey) key    { return k.text(s.SourceID).u16(s.Index).text(s.Type) }
func (k key) all() kv.Range              { return kv.Range{From: k, To: successor(k)} }

// successor is the lowest key above every key with the prefix.
func successor(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// after is the next key, in memory of its own.
func after(k []byte) []byte { return append(bytes.Clone(k), 0) }

func fenceKey(s Slot) []byte          { return partitionKey(s.Partition, famFence).u8(s.Index) }
func epochKey(partition uint8) []byte { return partitionKey(partition, famEpoch) }

// counterKey: writer is empty for the leader's, which sorts before the writers'.
func counterKey(partition uint8, s hook.SinkKey, writer []byte) []byte {
	return partitionKey(partition, famCounter).sinkKey(s).raw(writer)
}

func dueFamily(partition uint8, s hook.SinkKey) key {
	return partitionKey(partition, famDue).sinkKey(s)
}

func laneFamily(partition uint8, s hook.SinkKey) key {
	return partitionKey(partition, famLane).sinkKey(s)
}

// place is where a member stands within its lane.
func (k key) place(p hook.Place) key { return k.ts(p.Start).u32(p.Index) }

func rowKey(r *hook.Row) []byte {
	if r.Ordered {
		return laneFamily(r.Partition, r.Key).text(r.Lane).place(r.Place)
	}
	return dueKey(r)
}

// dueKey is the key of an unordered row, and of the wake-up of a member that waits: see hook.Row.Waits.
func dueKey(r *hook.Row) []byte { return dueFamily(r.Partition, r.Key).ts(r.Due).id(r.Hook) }

func deadFamily(partition uint8) key { return partitionKey(partition, famDead) }

func deadKey(partition uint8, tenant string, at hook.Timestamp, ref hook.Ref) []byte {
	return deadFamily(partition).text(tenant).ts(at).id(ref.Hook).u16(ref.Sink)
}

// deadTimeKey finds the dead letters of all tenants by time; its value is empty but for the format.
func deadTimeKey(partition uint8, tenant string, at hook.Timestamp, ref hook.Ref) []byte {
	return partitionKey(partition, famDeadTime).ts(at).text(tenant).id(ref.Hook).u16(ref.Sink)
}

func hookKey(partition uint8, tenant string, id hook.ID) []byte {
	return partitionKey(partition, famHook).text(tenant).id(id)
}

func bodyKey(partition uint8, tenant string, id hook.ID, chunk int) []byte {
	return partitionKey(partition, famBody).text(tenant).id(id).u32(uint32(chunk))
}

func obligationKey(partition uint8, tenant string, id hook.ID) []byte {
	return partitionKey(partition, famObligation).text(tenant).id(id)
}

func dedupeKey(partition uint8, tenant, sourceID, value string) []byte {
	return partitionKey(partition, famDedupe).text(tenant).text(sourceID).text(value)
}

// expiryKey: the bucket is the hour after the one in which the dedupe key expires.
func expiryKey(partition uint8, bucket uint32, dedupe []byte) []byte {
	return partitionKey(partition, famExpiry).u32(bucket).raw(dedupe)
}

func eventKey(partition uint8, at hook.Timestamp, slot uint8) []byte {
	return partitionKey(partition, famEvent).u32(bucketOf(at)).u8(slot).ts(at)
}

func historyKey(partition uint8, tenant string, ref hook.Ref) []byte {
	return partitionKey(partition, famHistory).u32(bucketOf(hook.FromMillis(ref.Hook.Millis()))).
		text(tenant).id(ref.Hook).u16(ref.Sink)
}

// bucketOf is the hour of a timestamp: events, histories and expiries are kept and dropped by the hour.
func bucketOf(t hook.Timestamp) uint32 { return uint32(t.Millis() / 3_600_000) }

func leaderKey() []byte                   { return clusterKey(famLeader) }
func clusterRecordKey() []byte            { return clusterKey(famCluster) }
func probeKey() []byte                    { return clusterKey(famProbe) }
func sourceKey(owner, name string) []byte { return clusterKey(famSource).text(owner).text(name) }
func guardKey(owner, name string) []byte  { return clusterKey(famGuard).text(owner).text(name) }
func writerKey(id []byte) []byte          { return clusterKey(famWriter).raw(id) }
func runnerKey(id []byte) []byte          { return clusterKey(famRunner).raw(id) }

// keyReader takes a key apart, in the order in which it was put together.
type keyReader struct {
	rest []byte
	err  error
}

func readKey(k []byte, skip int) *keyReader {
	if len(k) < skip {
		return &keyReader{err: errBadKey}
	}
	return &keyReader{rest: k[skip:]}
}

func (r *keyReader) take(n int) []byte {
	if r.err != nil || len(r.rest) < n {
		r.err = errBadKey
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *keyReader) text() string {
	var out []byte
	for i := 0; i+1 < len(r.rest); i++ {
		if r.rest[i] != 0 {
			out = append(out, r.rest[i])
			continue
		}
		if r.rest[i+1] == 1 {
			r.rest = r.rest[i+2:]
			return string(out)
		}
		if r.rest[i+1] != 0xff {
			break
		}
		out = append(out, 0)
		i++
	}
	r.err = errBadKey
	return ""
}

func (r *keyReader) u16() uint16        { return binary.BigEndian.Uint16(r.take(2)) }
func (r *keyReader) u32() uint32        { return binary.BigEndian.Uint32(r.take(4)) }
func (r *keyReader) ts() hook.Timestamp { return hook.Timestamp(binary.BigEndian.Uint64(r.take(8))) }

func (r *keyReader) id() (id hook.ID) {
	copy(id[:], r.take(16))
	return id
}

func (r *keyReader) sinkKey() hook.SinkKey {
	return hook.SinkKey{Tenant: r.text(), SourceID: r.text(), Index: r.u16(), Type: r.text()}
}

func (r *keyReader) place() hook.Place { return hook.Place{Start: r.ts(), Index: r.u32()} }

func (r *keyReader) end() error {
	if r.err == nil && len(r.rest) != 0 {
		r.err = errBadKey
	}
	return r.err
}
