package wire

import (
	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
)

// classes that a runner may report. hook.Lost is the leader's own finding and has no place on the wire.
var classes = [...]struct {
	proto dispatchv1.Class
	hook  hook.Class
}{
	{dispatchv1.Class_CLASS_DELIVERED, hook.Delivered},
	{dispatchv1.Class_CLASS_TRANSIENT, hook.Transient},
	{dispatchv1.Class_CLASS_THROTTLED, hook.Throttled},
	{dispatchv1.Class_CLASS_PERMANENT, hook.Permanent},
	{dispatchv1.Class_CLASS_PERMANENT_CONFIG, hook.PermanentConfig},
	{dispatchv1.Class_CLASS_TIMEOUT, hook.TimedOut},
	{dispatchv1.Class_CLASS_GONE, hook.Gone},
	{dispatchv1.Class_CLASS_SOURCE_GONE, hook.SourceGone},
	{dispatchv1.Class_CLASS_SINK_GONE, hook.SinkGone},
	{dispatchv1.Class_CLASS_NOT_STARTED, hook.NotStarted},
}

func readClass(p dispatchv1.Class) (hook.Class, bool) {
	for _, c := range classes {
		if c.proto == p {
			return c.hook, true
		}
	}
	return 0, false
}

// classProto of a class that cannot be reported is unspecified, which every reader refuses.
func classProto(h hook.Class) dispatchv1.Class {
	for _, c := range classes {
		if c.hook == h {
			return c.proto
		}
	}
	return dispatchv1.Class_CLASS_UNSPECIFIED
}
