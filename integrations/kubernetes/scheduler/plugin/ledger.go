package plugin

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"cotenant-scheduler/rest"
)

// stale is the age from which a placement is not reported: by then the inventory's sync shows it, or it never was one.
const stale = 30 * time.Second

// ledger holds the pods that were put on nodes, and those that were taken back, since the last report to the service.
type ledger struct {
	lock     sync.Mutex
	placed   []entry // in order of time, one entry a pod
	released []entry
	telling  []entry // placed, reported in a question that is not answered yet
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

// release takes a placement back. It is reported only where the placement was.
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

// take takes entries out of the ledger, the oldest first, as many as one question may report.
func (l *ledger) take() (placed, released []entry) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.placed, l.released = fresh(l.placed), fresh(l.released)
	n, m := min(len(l.placed), mostPlaced), min(len(l.released), mostPlaced)
	placed, released = l.placed[:n:n], l.released[:m:m]
	l.placed, l.released, l.telling = l.placed[n:], l.released[m:], placed
	return placed, released
}

// told ends a question that was answered, or never will be.
func (l *ledger) told() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.telling = nil
}

// gone notes that a pod was deleted or has ended. The inventory's sync reports that, too, but perhaps before the service
// hears where the pod was put. Then it would count there until the hold ends.
func (l *ledger) gone(pod *v1.Pod) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.placed = without(l.placed, string(pod.UID))
	if len(without(l.telling, string(pod.UID))) < len(l.telling) {
		l.released = append(without(l.released, string(pod.UID)), entry{pod: slim(pod), at: time.Now()})
	}
}

// giveBack returns the entries of a question that failed to the ledger. Later entries about the same pods win.
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

// bound forgets the oldest entries where the service is away for long. The caller holds the lock.
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
