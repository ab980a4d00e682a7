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
	lasting   = 2 * time.Second        // for how long an answer holds for pods alike; measurements of nodes are older
	alike     = 2                      // points of 100 by which nodes as good may differ: predictions are less sure
	watched   = 150 * time.Millisecond // time to notice a burst that another scheduler began at the same moment
	burst     = time.Second            // after so long without a question the next one begins a burst
	mostKinds = 64                     // kinds of pods that are remembered
	mostMarks = 32768                  // nodes that are remembered
)

// tables are the last answers about each kind of pods; pods of a kind differ in their names only.
//
// A pod that comes to a node never makes it better for the next one. So the score of a node that changed since the
// question about it is at most what it was, and the node is asked about again only where that exceeds the best score that
// still holds. (Lazy evaluation of a greedy choice; Minoux 1978, doi:10.1007/BFb0006528.)
type tables struct {
	lock  sync.Mutex
	of    map[string]*table
	marks marks
	alone time.Time // since when, in this burst, answers say that no other scheduler places pods; zero = one does
	last  time.Time // when the last answer came
	watch time.Duration
}

// table of one kind. Its answer and marks are replaced, never changed, because preemption reads them later.
type table struct {
	at    time.Time
	found *answer
	seen  map[string]uint64 // the mark of each node at the question about it
	eager bool              // other plug-ins chose a node that had changed: then all changed nodes are asked about
}

// view compares a table with the nodes as they are now.
type view struct {
	*answer
	changed map[string]struct{} // nodes that changed since the question about them
	best    int64               // best score of the others, -1 = there is none
}

// kindOf gives everything of a pod that an answer depends on; empty = no other pod is like it. The service may know a
// guest of KubeVirt by its name, so each is alone.
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

// look gives what is known of a kind, and the nodes that must be asked about first: all where nothing is known.
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

// among gives the nodes to ask about among those that passed every filter.
func (t *tables) among(kind string, seen *view, nodes []fwk.NodeInfo) []string {
	t.lock.Lock()
	defer t.lock.Unlock()
	if one := t.of[kind]; one != nil {
		return one.unsure(seen, nodes)
	}
	return nil
}

// unsure gives the nodes that changed, if one of them may be better than all others or may no longer be refused.
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
		if _, never := seen.FailedAndUnresolvableNodes[name]; !fits && !never { // refused before a pod left, or new
			again = true
		}
		bound = max(bound, score)
	}
	if best >= 0 && best+alike >= bound && !again && !t.eager {
		return nil
	}
	return changed
}

// keep stores an answer about all nodes or some, and gives the view of all. Scores that depend on which nodes are asked
// about are not stored.
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

// answered notes whether others place pods, and drops answers that no longer hold.
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

// others says whether another scheduler may be placing pods, too.
func (t *tables) others() bool {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.mayPlace()
}

func (t *tables) mayPlace() bool {
	now := time.Now()
	return t.alone.IsZero() || now.Sub(t.alone) < t.watch || now.Sub(t.last) > burst
}

// drop forgets all answers: a pod was not bound.
func (t *tables) drop() {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.of = nil
}

// choseChanged notes that other plug-ins chose a node that had changed.
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

// score of a node. One that changed ranks behind the best that did not, because it is only known to be no better than
// before.
func (v *view) score(name string) int64 {
	score := v.Scores[name]
	if _, changed := v.changed[name]; changed && v.best >= 0 {
		return max(min(score, v.best)-1, 0)
	}
	return score
}

// about reports whether an answer refuses a node, and whether it says anything about it.
func (a *answer) about(name string) (refused, told bool) {
	if _, fits := a.Scores[name]; fits {
		return false, true
	}
	_, failed := a.FailedNodes[name]
	_, never := a.FailedAndUnresolvableNodes[name]
	return true, failed || never
}

// with gives this answer, replaced by a newer one for the nodes that were asked about.
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

// marks tell by its pods whether a node changed. A node's generation changes with every heartbeat; while it does not, the
// pods are the same.
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
