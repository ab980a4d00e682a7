package plugin

import (
	"encoding/json"
	"hash/maphash"
	"maps"
	"sync"
	"time"

	fwk "k8s.io/kube-scheduler/framework"

	"cotenant-scheduler/rest"
)

const (
	lasting   = 2 * time.Second        // for so long an answer stands for pods alike; what is measured of nodes is older
	alike     = 2                      // points of 100 that nodes may differ by and still be as good; no prediction is as sure
	watched   = 150 * time.Millisecond // a burst of somebody else who began at the same time is noticed in that
	burst     = time.Second            // without a question for so long the next one begins a burst
	mostKinds = 64                     // of pods that are remembered
	mostMarks = 32768                  // nodes
)

// tables are what was answered last about each kind of pods: pods that differ in their names only.
//
// A pod that comes to a node never makes it better for the next one. So the score of a node that changed since it was
// asked about is at most what it was then, and it needs to be asked about again only where that is more than the best
// score that still holds. (Lazy evaluation of a greedy choice; Minoux 1978, doi:10.1007/BFb0006528.)
type tables struct {
	lock  sync.Mutex
	of    map[string]*table
	marks marks
	alone time.Time // since when, in this burst, answers say that nobody else places; zero = somebody does
	last  time.Time // when the last answer came
	watch time.Duration
}

// table of one kind. Its answer and marks are never changed, only replaced: preemption reads them later.
type table struct {
	at    time.Time
	found *answer
	seen  map[string]uint64 // the mark of each node when it was asked about
	eager bool              // other plug-ins chose a node that had changed: then all such are asked about
}

// view is a table beside the nodes as they are now.
type view struct {
	*answer
	changed map[string]struct{} // nodes that changed since they were asked about
	best    int64               // score among the others, -1 = there is none
}

// kindOf is everything of a pod that an answer depends on. A guest of KubeVirt may be known by its name: it is alone.
func kindOf(pod *rest.Pod) string {
	if pod.Metadata.Labels[kubevirt] == launcher {
		return ""
	}
	same := *pod
	same.Metadata.Name, same.Metadata.Uid, same.Metadata.Labels = "", "", maps.Clone(pod.Metadata.Labels)
	for _, own := range []string{"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index"} {
		delete(same.Metadata.Labels, own)
	}
	text, err := json.Marshal(same)
	if err != nil {
		return ""
	}
	return string(text)
}

// look is what is known of a kind, and the nodes that must be asked about first: all where nothing is.
func (t *tables) look(kind string, nodes []fwk.NodeInfo) (*view, []string) {
	t.lock.Lock()
	defer t.lock.Unlock()
	one := t.of[kind]
	if one == nil || kind == "" || one.found == nil || t.mayPlace() || time.Since(one.at) > lasting {
		return nil, names(nodes)
	}
	seen := t.seen(one, nodes)
	if ask := one.unsure(seen, nodes); len(ask) > 0 {
		return seen, ask
	}
	return seen, nil
}

// among is the same for the nodes that passed every filter.
func (t *tables) among(kind string, seen *view, nodes []fwk.NodeInfo) []string {
	t.lock.Lock()
	defer t.lock.Unlock()
	if one := t.of[kind]; one != nil {
		return one.unsure(seen, nodes)
	}
	return nil
}

// unsure are the nodes that changed, where one of them may be better than all that did not, or may do again.
func (t *table) unsure(seen *view, nodes []fwk.NodeInfo) []string {
	changed, best, bound, again := []string{}, int64(-1), int64(-1), false
	for _, node := range nodes {
		name := node.Node().Name
		score, fits := seen.Scores[name]
		if _, is := seen.changed[name]; !is {
			if fits {
				best = max(best, score)
			}
			continue
		}
		changed = append(changed, name)
		if _, never := seen.FailedAndUnresolvableNodes[name]; !fits && !never { // refused before somebody left, or new
			again = true
		}
		bound = max(bound, score)
	}
	if best >= 0 && best+alike >= bound && !again && !t.eager {
		return nil
	}
	return changed
}

// keep an answer about these nodes, all that there are or some; the view of all. Scores that depend on which nodes are
// asked about are kept for nobody.
func (t *tables) keep(kind string, found *answer, asked []string, before *view, nodes []fwk.NodeInfo) *view {
	t.lock.Lock()
	defer t.lock.Unlock()
	now := &table{at: time.Now(), found: found, seen: map[string]uint64{}}
	if former := t.of[kind]; former != nil {
		now.eager = former.eager
		if before != nil {
			now.at, now.seen = former.at, maps.Clone(former.seen)
			now.found = before.with(found, asked)
		}
	}
	for _, node := range nodes {
		if _, told := found.about(node.Node().Name); told {
			now.seen[node.Node().Name] = t.marks.of(node)
		}
	}
	seen := t.seen(now, nodes)
	if kind == "" || !found.PerNode || found.Error != "" {
		delete(t.of, kind)
		return seen
	}
	if t.of == nil || (len(t.of) >= mostKinds && t.of[kind] == nil) {
		t.of = map[string]*table{}
	}
	t.of[kind] = now
	return seen
}

// answered notes whether others place, and what no longer stands then.
func (t *tables) answered(found *answer, now time.Time) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if !found.PerNode {
		t.of = nil
	}
	switch {
	case found.Others:
		t.alone = time.Time{}
	case t.alone.IsZero() || now.Sub(t.last) > burst:
		t.alone = now
	}
	t.last = now
}

// others tells whether somebody else may be placing, too.
func (t *tables) others() bool {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.mayPlace()
}

func (t *tables) mayPlace() bool {
	now := time.Now()
	return t.alone.IsZero() || now.Sub(t.alone) < t.watch || now.Sub(t.last) > burst
}

// drop forgets what was answered: the service says that it may not stand, or a pod was not bound.
func (t *tables) drop() {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.of = nil
}

// choseChanged notes that other plug-ins weigh more than what is alike here.
func (t *tables) choseChanged(kind string) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if one := t.of[kind]; one != nil {
		one.eager = true
	}
}

func (t *tables) seen(one *table, nodes []fwk.NodeInfo) *view {
	found := &view{answer: one.found, changed: map[string]struct{}{}, best: -1}
	for _, node := range nodes {
		name := node.Node().Name
		if mark, known := one.seen[name]; !known || mark != t.marks.of(node) {
			found.changed[name] = struct{}{}
		} else if score, fits := one.found.Scores[name]; fits {
			found.best = max(found.best, score)
		}
	}
	return found
}

// score of a node: one that changed is behind the best that did not, for it is only known to be no better than it was.
func (v *view) score(name string) int64 {
	score := v.Scores[name]
	if _, changed := v.changed[name]; changed && v.best >= 0 {
		return max(min(score, v.best)-1, 0)
	}
	return score
}

// about tells whether an answer says something of a node, and that it is refused.
func (a *answer) about(name string) (refused, told bool) {
	if _, fits := a.Scores[name]; fits {
		return false, true
	}
	_, failed := a.FailedNodes[name]
	_, never := a.FailedAndUnresolvableNodes[name]
	return true, failed || never
}

// with is this answer where another is newer about some nodes.
func (a *answer) with(newer *answer, asked []string) *answer {
	joined := &answer{
		FailedNodes: maps.Clone(a.FailedNodes), FailedAndUnresolvableNodes: maps.Clone(a.FailedAndUnresolvableNodes),
		Scores: maps.Clone(a.Scores), Error: newer.Error, PerNode: newer.PerNode, Others: newer.Others,
	}
	for _, name := range asked {
		delete(joined.FailedNodes, name)
		delete(joined.FailedAndUnresolvableNodes, name)
		delete(joined.Scores, name)
	}
	joined.FailedNodes = joinedWith(joined.FailedNodes, newer.FailedNodes)
	joined.FailedAndUnresolvableNodes = joinedWith(joined.FailedAndUnresolvableNodes, newer.FailedAndUnresolvableNodes)
	joined.Scores = joinedWith(joined.Scores, newer.Scores)
	return joined
}

func joinedWith[V any](into, from map[string]V) map[string]V {
	if into == nil {
		return from
	}
	maps.Copy(into, from)
	return into
}

func names(nodes []fwk.NodeInfo) []string {
	found := make([]string, 0, len(nodes))
	for _, node := range nodes {
		found = append(found, node.Node().Name)
	}
	return found
}

// marks tell by its pods whether a node changed. Its generation changes with every heartbeat, too; while it does not,
// the pods are the same.
type marks struct {
	seed maphash.Seed
	made map[string]mark
}

type mark struct {
	generation int64
	pods       uint64
}

func (m *marks) of(node fwk.NodeInfo) uint64 {
	name, generation := node.Node().Name, node.GetGeneration()
	if known, ok := m.made[name]; ok && known.generation == generation {
		return known.pods
	}
	if m.made == nil {
		m.seed = maphash.MakeSeed()
	}
	if m.made == nil || len(m.made) >= mostMarks {
		m.made = map[string]mark{}
	}
	now := mark{generation: generation}
	for _, one := range node.GetPods() { // in any order
		now.pods += maphash.String(m.seed, string(one.GetPod().UID))
	}
	m.made[name] = now
	return now.pods
}
