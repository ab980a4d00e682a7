package plugin

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"cotenant-scheduler/rest"
)

// stale is the age from which on the inventory's sync has told of a placement, or it never was one.
const stale = 30 * time.Second

// ledger holds which pods were put on nodes, and which of those were taken back, since the service was told last.
type ledger struct {
	lock     sync.Mutex
	placed   []entry // in their order, one for a pod
	released []entry
	telling  []entry // placed, in a question that is not answered yet
}

type entry struct {
	pod  *rest.Pod
	node string
	at   time.Time
}

func (l *ledger) place(pod *rest.Pod, node string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.placed = append(without(l.placed, pod.Metadata.Uid), entry{pod, node, time.Now()})
	l.released = without(l.released, pod.Metadata.Uid)
	l.bound()
}

// release takes a placement back: silently where the service does not know of it yet.
func (l *ledger) release(pod *rest.Pod) {
	l.lock.Lock()
	defer l.lock.Unlock()
	kept := without(l.placed, pod.Metadata.Uid)
	if len(kept) == len(l.placed) {
		l.released = append(without(l.released, pod.Metadata.Uid), entry{pod: pod, at: time.Now()})
	}
	l.placed = kept
	l.bound()
}

// take empties the ledger, the oldest first, up to what one question tells.
func (l *ledger) take() (placed, released []entry) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.placed, l.released = fresh(l.placed), fresh(l.released)
	n, m := min(len(l.placed), mostPlaced), min(len(l.released), mostPlaced)
	placed, released = l.placed[:n:n], l.released[:m:m]
	l.placed, l.released, l.telling = l.placed[n:], l.released[m:], placed
	return placed, released
}

// told is for a question that was answered, or never will be.
func (l *ledger) told() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.telling = nil
}

// gone is for a pod that was deleted or has ended. The inventory's sync tells that, too, but maybe before the service
// hears where the pod was put: then it would count there until the hold ends.
func (l *ledger) gone(pod *v1.Pod) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.placed = without(l.placed, string(pod.UID))
	if len(without(l.telling, string(pod.UID))) < len(l.telling) {
		l.released = append(without(l.released, string(pod.UID)), entry{pod: slim(pod), at: time.Now()})
	}
}

// giveBack is for a question that failed. What happened meanwhile wins.
func (l *ledger) giveBack(placed, released []entry) {
	l.lock.Lock()
	defer l.lock.Unlock()
	for _, later := range l.placed {
		placed, released = without(placed, later.pod.Metadata.Uid), without(released, later.pod.Metadata.Uid)
	}
	for _, later := range l.released {
		placed, released = without(placed, later.pod.Metadata.Uid), without(released, later.pod.Metadata.Uid)
	}
	l.placed, l.released, l.telling = append(placed, l.placed...), append(released, l.released...), nil
	l.bound()
}

func (l *ledger) empty() bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	return len(l.placed) == 0 && len(l.released) == 0
}

// bound forgets the oldest where the service is away for long: the lock is held.
func (l *ledger) bound() {
	for _, list := range []*[]entry{&l.placed, &l.released} {
		if over := len(*list) - 4*mostPlaced; over > 0 {
			untold.Add(float64(over))
			*list = append([]entry(nil), (*list)[over:]...)
		}
	}
}

func fresh(list []entry) []entry {
	since := time.Now().Add(-stale)
	old := 0
	for old < len(list) && list[old].at.Before(since) {
		old++
	}
	untold.Add(float64(old))
	return list[old:]
}

func without(list []entry, uid string) []entry {
	kept := make([]entry, 0, len(list)+1)
	for _, one := range list {
		if one.pod.Metadata.Uid != uid {
			kept = append(kept, one)
		}
	}
	return kept
}
