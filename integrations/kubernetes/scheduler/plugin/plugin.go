// Package plugin asks a Cotenant service where a pod fares well: at most once for each pod, and about all nodes.
//
// PreFilter asks, unless pods alike were asked about just before (tables). Filter and Score look the answer up. Reserve
// and Unreserve note what became of the pod, which the next question reports. While the service is away pods are
// scheduled as without the plug-in.
package plugin

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"cotenant-scheduler/rest"
)

// Name of the plug-in in a KubeSchedulerConfiguration.
const Name = "Cotenant"

// unanswered is the key of the state for a pod about which there is no answer.
const unanswered = Name + "/unanswered"

// soon is the delay after which placements are reported without another pod's question. Until then others may take the
// same node.
const soon = 25 * time.Millisecond

// Plugin is the plug-in of one profile.
type Plugin struct {
	client  *client
	ledger  ledger
	tables  tables
	victims victims
	turn    sync.Mutex // held while a question reports what the ledger held, so that the next one sees its effect
	timing  sync.Mutex
	timer   *time.Timer
	soon    time.Duration
	ctx     context.Context
}

var (
	_ fwk.PreFilterPlugin     = &Plugin{}
	_ fwk.PreFilterExtensions = &Plugin{}
	_ fwk.FilterPlugin        = &Plugin{}
	_ fwk.PreScorePlugin      = &Plugin{}
	_ fwk.ScorePlugin         = &Plugin{}
	_ fwk.ReservePlugin       = &Plugin{}
	_ fwk.EnqueueExtensions   = &Plugin{}
	_ fwk.SignPlugin          = &Plugin{}
)

// New reads the plug-in's arguments; see Args.
func New(ctx context.Context, given runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	args, err := readArgs(given)
	if err != nil {
		return nil, err
	}
	made, err := newClient(args)
	if err != nil {
		return nil, err
	}
	registerMetrics()
	p := &Plugin{client: made, soon: soon, ctx: ctx, tables: tables{watch: watched}}
	if handle != nil {
		pods := handle.SharedInformerFactory().Core().V1().Pods().Informer()
		if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: p.deleted}); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// deleted gets a pod, or the last known state of a pod whose deletion was missed.
func (p *Plugin) deleted(found any) {
	if last, missed := found.(cache.DeletedFinalStateUnknown); missed {
		found = last.Obj
	}
	if pod, ok := found.(*v1.Pod); ok && asks(pod) {
		p.ledger.gone(pod)
		if !p.ledger.empty() {
			p.tellSoon(p.soon)
		}
	}
}

// Name of the plug-in.
func (*Plugin) Name() string { return Name }

// advice is the service's answer about a pod, in the state of its scheduling cycle.
type advice struct {
	*view
	kind     string    // of pods alike; empty = no other pod is like it
	pod      *rest.Pod // as questions describe it
	gone     map[types.UID]struct{}
	left     []string // victims of earlier preemptions that have left their nodes
	patience *patience
	scored   bool
}

// Clone copies the advice for preemption, which takes pods from nodes in copies of the state, in parallel.
func (a *advice) Clone() fwk.StateData {
	gone := make(map[types.UID]struct{}, len(a.gone))
	for uid := range a.gone {
		gone[uid] = struct{}{}
	}
	return &advice{a.view, a.kind, a.pod, gone, a.left, a.patience, a.scored}
}

func adviceIn(state fwk.CycleState) *advice { return in(state, Name) }

func in(state fwk.CycleState, key fwk.StateKey) *advice {
	if data, err := state.Read(key); err == nil {
		if found, ok := data.(*advice); ok {
			return found
		}
	}
	return nil
}

// PreFilter asks about all nodes, or, where a pod alike was asked about before, about those that changed. Pods that do
// not ask for advice cost nothing.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !asks(pod) || len(nodes) == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	told := slim(pod)
	left := p.victims.gone(pod.UID, nodes)
	kind := ""
	if len(left) == 0 {
		kind = kindOf(told)
	}
	seen, ask := p.tables.look(kind, nodes)
	if len(ask) > 0 {
		found, err := p.tell(ctx, &question{Pod: told, NodeNames: ask, Without: left})
		if err == nil && seen != nil && !found.PerNode { // earlier scores of the other nodes do not compare with these
			seen, ask = nil, names(nodes)
			found, err = p.tell(ctx, &question{Pod: told, NodeNames: ask, Without: left})
		}
		if err != nil {
			pods.WithLabelValues("unadvised").Inc()
			state.Write(unanswered, &advice{pod: told})
			return nil, fwk.NewStatus(fwk.Skip)
		}
		if found.Error != "" { // becomes an event of the pod, so that its owner sees what is wrong
			pods.WithLabelValues("wrong").Inc()
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, found.Error)
		}
		seen = p.tables.keep(kind, found, ask, seen, nodes)
	}
	pods.WithLabelValues("advised").Inc()
	state.Write(Name, &advice{view: seen, kind: kind, pod: told, left: left, patience: newPatience(3 * p.client.timeout)})
	if len(seen.FailedNodes) == 0 && len(seen.FailedAndUnresolvableNodes) == 0 {
		return nil, fwk.NewStatus(fwk.Skip) // Filter has nothing to look up
	}
	return nil, nil
}

// PreFilterExtensions lets preemption ask what would happen without its victims.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// Filter refuses nodes where a limit would break, or that have no room.
func (p *Plugin) Filter(ctx context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	found := adviceIn(state)
	if found == nil {
		return nil
	}
	name := node.Node().Name
	if why, refused := found.FailedAndUnresolvableNodes[name]; refused {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	why, refused := found.FailedNodes[name]
	if refused && !p.doesWithout(ctx, found, name) {
		return fwk.NewStatus(fwk.Unschedulable, why)
	}
	return nil
}

// PreScore skips Score where there is no answer. It asks again where only nodes that changed passed all filters.
func (p *Plugin) PreScore(ctx context.Context, state fwk.CycleState, _ *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	found := adviceIn(state)
	if found == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	found.scored = true
	if ask := p.tables.among(found.kind, found.view, nodes); len(ask) > 0 {
		p.askAgain(ctx, found, ask, nodes)
	}
	return nil
}

// askAgain asks about nodes that changed; without an answer their earlier scores stay.
func (p *Plugin) askAgain(ctx context.Context, found *advice, ask []string, nodes []fwk.NodeInfo) {
	newer, err := p.tell(ctx, &question{Pod: found.pod, NodeNames: ask})
	if err == nil && newer.Error == "" {
		found.view = p.tables.keep(found.kind, newer, ask, found.view, nodes)
	}
}

// Score of a node, 0-100.
func (*Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	if found := adviceIn(state); found != nil {
		return found.score(node.Node().Name), nil
	}
	return 0, nil
}

// ScoreExtensions gives none: the service's scores compare as they are.
func (*Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }

// Reserve notes where the pod goes. The next pod's question reports it, so that a burst spreads. A node that changed
// since the question about it is asked about first.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, _ *v1.Pod, node string) *fwk.Status {
	found := adviceIn(state)
	if found == nil {
		if found = in(state, unanswered); found != nil { // it still counts where it goes
			p.ledger.place(found.pod, node)
			p.tellSoon(p.soon)
		}
		return nil
	}
	held, why := p.refusedNow(ctx, found, node)
	if why != "" {
		return fwk.NewStatus(fwk.Error, node+" filled up meanwhile: "+why) // an error, so that the pod is tried again soon
	}
	if held {
		return nil
	}
	p.ledger.place(found.pod, node)
	p.victims.forget(types.UID(found.pod.Metadata.Uid))
	p.tellSoon(p.soon)
	return nil
}

// refusedNow says why the chosen node is refused now; empty = it is not. Where others may place pods, too, the node is
// held at once: they might choose it before the next question.
func (p *Plugin) refusedNow(ctx context.Context, found *advice, node string) (held bool, why string) {
	thought := found.score(node)
	_, changed := found.changed[node]
	// Until the sync the service still counts victims of this pod on the node, and would refuse it.
	others := p.tables.others() && len(found.left) == 0
	if changed || others {
		if changed && found.scored {
			p.tables.choseChanged(found.kind)
		}
		newer, err := p.tell(ctx, &question{Pod: found.pod, NodeNames: []string{node}, Hold: others})
		if err != nil {
			return false, ""
		}
		score, fits := newer.Scores[node]
		switch held = others && fits; {
		case held && score+alike < thought:
			p.ledger.release(found.pod)
			p.tellSoon(p.soon)
			return false, "another scheduler has placed a pod there"
		case held:
			p.victims.forget(types.UID(found.pod.Metadata.Uid))
		}
		found.view = &view{answer: newer}
	}
	if why, never := found.FailedAndUnresolvableNodes[node]; never {
		return false, why
	}
	return held, found.FailedNodes[node]
}

// Unreserve takes the reservation back.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ string) {
	found := adviceIn(state)
	if found == nil {
		found = in(state, unanswered)
	}
	if found != nil {
		p.tables.drop() // answers about its node may have counted it
		p.ledger.release(found.pod)
		p.tellSoon(p.soon)
	}
}

// EventsToRegister lists when a refused pod is tried again: a pod left, a node came or changed, or the pod itself changed.
func (*Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	nodes := fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete | fwk.Update}, QueueingHintFn: ofPods},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: nodes}},
	}, nil
}

func ofPods(_ klog.Logger, pod *v1.Pod, before, after any) (fwk.QueueingHint, error) {
	if changed, ok := after.(*v1.Pod); ok && changed != nil {
		if changed.UID == pod.UID {
			return fwk.Queue, nil
		}
		return fwk.QueueSkip, nil
	}
	if left, ok := before.(*v1.Pod); ok && left.Spec.NodeName == "" {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// SignPod keeps pods that ask from being batched, because advice changes with every placement. All others may be.
func (*Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if asks(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "Cotenant is asked about every such pod")
	}
	return nil, nil
}

// tell asks a question that also reports what the ledger holds.
func (p *Plugin) tell(ctx context.Context, asked *question) (*answer, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	placed, released := p.ledger.take()
	for _, one := range placed {
		asked.Placed = append(asked.Placed, rest.PlacedPod{NodeName: one.node, Pod: *one.pod})
	}
	for _, one := range released {
		asked.Released = append(asked.Released, *one.pod)
	}
	found, err := p.client.ask(ctx, asked)
	var refused aboutThisPod
	switch {
	case err == nil:
		p.ledger.told()
		p.tables.answered(found, time.Now())
	case asked.Pod == nil && errors.As(err, &refused): // one of the reported pods is why; it must not spoil every question
		untold.Add(float64(len(placed)))
		p.ledger.told()
	default:
		p.ledger.giveBack(placed, released)
	}
	return found, err
}

func (p *Plugin) tellSoon(after time.Duration) {
	p.timing.Lock()
	defer p.timing.Unlock()
	if p.timer == nil && p.ctx.Err() == nil {
		p.timer = time.AfterFunc(after, p.tellNow)
	}
}

func (p *Plugin) tellNow() {
	p.timing.Lock()
	p.timer = nil
	p.timing.Unlock()
	if p.ledger.empty() || p.ctx.Err() != nil {
		return
	}
	_, err := p.tell(p.ctx, &question{NodeNames: []string{}})
	if !p.ledger.empty() {
		after := p.soon
		if err != nil {
			after = p.client.rest
		}
		p.tellSoon(after)
	}
}
