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

// AddPod notes that a pod would not be evicted after all.
func (*Plugin) AddPod(_ context.Context, state fwk.CycleState, _ *v1.Pod, victim fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	if found := adviceIn(state); found != nil {
		delete(found.gone, victim.GetPod().UID)
	}
	return nil
}

// doesWithout reports whether a refused node would do without the pods that preemption proposes. It says no without an
// answer in time, so that no pod is evicted for nothing.
func (p *Plugin) doesWithout(ctx context.Context, found *advice, node string) bool {
	if len(found.gone) == 0 || !found.patience.enter() {
		return false
	}
	defer found.patience.leave()
	asked := &question{Pod: found.pod, NodeNames: []string{node}, Without: append([]string{}, found.left...)}
	for uid := range found.gone {
		asked.Without = append(asked.Without, string(uid))
	}
	without, err := p.client.ask(ctx, asked)
	if err != nil {
		return false
	}
	_, passes := without.Scores[node]
	if passes {
		p.victims.remember(types.UID(found.pod.Metadata.Uid), node, found.gone)
	}
	return passes
}

// patience bounds how long preemption asks about one pod: kube-scheduler tries nodes in parallel, and the service answers
// one after the other.
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

// mostPreempting bounds the number of pods whose victims are remembered.
const mostPreempting = 256

// victims are the pods that would have to leave a node for another pod, by that pod and by node. When they have left,
// kube-scheduler tries that pod again at once, before the inventory's sync has reported it to the service. The service
// would refuse the node because of them, and others would be evicted.
type victims struct {
	lock sync.Mutex
	of   map[types.UID]map[string]map[types.UID]struct{}
}

func (v *victims) remember(pod types.UID, node string, leave map[types.UID]struct{}) {
	v.lock.Lock()
	defer v.lock.Unlock()
	if v.of == nil || (len(v.of) >= mostPreempting && v.of[pod] == nil) {
		v.of = map[types.UID]map[string]map[types.UID]struct{}{}
	}
	if v.of[pod] == nil {
		v.of[pod] = map[string]map[types.UID]struct{}{}
	}
	if v.of[pod][node] == nil {
		v.of[pod][node] = map[types.UID]struct{}{}
	}
	for uid := range leave {
		v.of[pod][node][uid] = struct{}{}
	}
}

// gone gives the victims of a pod that kube-scheduler no longer has on their nodes.
func (v *victims) gone(pod types.UID, nodes []fwk.NodeInfo) []string {
	v.lock.Lock()
	defer v.lock.Unlock()
	var found []string
	for _, node := range nodes {
		leave := v.of[pod][node.Node().Name]
		if len(leave) == 0 {
			continue
		}
		there := map[types.UID]struct{}{}
		for _, one := range node.GetPods() {
			there[one.GetPod().UID] = struct{}{}
		}
		for uid := range leave {
			if _, stays := there[uid]; !stays {
				found = append(found, string(uid))
			}
		}
	}
	return found
}

func (v *victims) forget(pod types.UID) {
	v.lock.Lock()
	defer v.lock.Unlock()
	delete(v.of, pod)
}
