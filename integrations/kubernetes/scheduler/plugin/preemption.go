package plugin

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// RemovePod notes that a pod would be evicted.
func (*Plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *v1.Pod, victim fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	if found := adviceIn(state); found != nil {
		if found.gone == nil {
			found.gone = map[types.UID]struct{}{}
		}
		found.gone[victim.GetPod().UID] = struct{}{}
	}
	return nil
}

// AddPod notes that it would not be. Pods that were never taken away are on their nodes anyway.
func (*Plugin) AddPod(_ context.Context, state fwk.CycleState, _ *v1.Pod, victim fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	if found := adviceIn(state); found != nil {
		delete(found.gone, victim.GetPod().UID)
	}
	return nil
}

// doesWithout tells whether a node that was refused would do without the pods that preemption has in mind. When it is
// not known in time it would not, so that nobody is evicted for nothing.
func (p *Plugin) doesWithout(ctx context.Context, found *advice, node string) bool {
	if len(found.gone) == 0 || !found.patience.enter() {
		return false
	}
	defer found.patience.leave()
	asked := &question{Pod: found.pod, NodeNames: []string{node}}
	for uid := range found.gone {
		asked.Without = append(asked.Without, string(uid))
	}
	without, err := p.client.ask(ctx, asked)
	if err != nil {
		return false
	}
	_, passes := without.Scores[node]
	return passes
}

// patience bounds for how long preemption asks about one pod: kube-scheduler tries nodes in parallel, and the service
// answers one after the other.
type patience struct {
	within time.Duration
	lock   sync.Mutex
	until  time.Time
}

func newPatience(within time.Duration) *patience { return &patience{within: within} }

// enter waits for its turn; false = time is up.
func (p *patience) enter() bool {
	p.lock.Lock()
	now := time.Now()
	if p.until.IsZero() {
		p.until = now.Add(p.within)
	}
	if now.After(p.until) {
		p.lock.Unlock()
		return false
	}
	return true
}

func (p *patience) leave() { p.lock.Unlock() }
