package core

import (
	"cmp"

	"ankusa.dev/services/internal/hook"
)

// maxEnded bounds the lanes that are remembered after their last member.
const maxEnded = 16384

// endedLanes remembers of lanes that have no member left from when on one could still turn up, so that the next read
// does not go over all that was deleted. It forgets the oldest.
type endedLanes struct {
	most  int // maxEnded where it is zero
	at    map[laneID]hook.Timestamp
	order queue[endedLane] // with those that have been forgotten, or have ended again
}

type endedLane struct {
	id laneID
	at hook.Timestamp
}

func (e *endedLanes) put(id laneID, at hook.Timestamp) {
	if e.at == nil {
		e.at = make(map[laneID]hook.Timestamp)
	}
	e.at[id] = at
	e.order.push(endedLane{id, at})
	for e.order.len() > cmp.Or(e.most, maxEnded) {
		if old := e.order.pop(); e.at[old.id] == old.at {
			delete(e.at, old.id)
		}
	}
}

func (e *endedLanes) forget(id laneID) { delete(e.at, id) }

// from is where the read of a lane begins in which a place was named.
func (e *endedLanes) from(id laneID, named hook.Place) hook.Place {
	if at, known := e.at[id]; known {
		return earlier(hook.Place{Start: at}, named)
	}
	return hook.Place{}
}
