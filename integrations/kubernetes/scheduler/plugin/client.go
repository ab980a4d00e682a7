package plugin

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const mostAnswered = 16 << 20 // bytes of an answer; 10,000 nodes with a sentence each are about 1.5 MB

var errResting = errors.New("the service is not asked for a while after a failure")

// aboutThisPod is a refusal of one question. The service works, so the next pod may ask.
type aboutThisPod struct{ error }

// client asks the service. After a failure it does not ask for a while, and then tries one question. The pause grows
// with every failure, up to rest.
type client struct {
	tokenFile string
	timeout   time.Duration
	rest      time.Duration
	http      *http.Client
	url       string // of POST /kubernetes/advice

	lock       sync.Mutex
	restsUntil time.Time // zero = the last question was answered
	failures   int       // in a row
}

func newClient(args *Args) (*client, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: 60 * time.Second, ForceAttemptHTTP2: true}
	if args.CAFile != "" {
		pem, err := os.ReadFile(args.CAFile)
		if err != nil {
			return nil, fmt.Errorf("args of the plug-in Cotenant: caFile: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("args of the plug-in Cotenant: caFile %s holds no certificate in PEM", args.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	if args.TokenFile != "" {
		if _, err := readToken(args.TokenFile); err != nil {
			return nil, err
		}
	}
	// A redirect would carry the question, and maybe the token, to somewhere else.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client{
		tokenFile: args.TokenFile,
		timeout:   args.Timeout.Duration,
		rest:      args.Rest.Duration,
		http:      &http.Client{Transport: transport, CheckRedirect: stay},
		url:       strings.TrimRight(args.URL, "/") + "/kubernetes/advice",
	}, nil
}

func readToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("args of the plug-in Cotenant: tokenFile: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// ask puts a question, within the timeout and the deadline of `ctx`.
func (c *client) ask(ctx context.Context, asked *question) (*answer, error) {
	if !c.begin() {
		questions.WithLabelValues("resting").Inc()
		return nil, errResting
	}
	began := time.Now()
	found, err := c.post(ctx, asked)
	c.end(ctx, err)
	seconds.Observe(time.Since(began).Seconds())
	return found, err
}

// begin reports whether a question may be put. While one question is tried after a pause, no other may be.
func (c *client) begin() bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	now := time.Now()
	if now.Before(c.restsUntil) {
		return false
	}
	if !c.restsUntil.IsZero() {
		c.restsUntil = now.Add(c.timeout)
	}
	return true
}

func (c *client) end(ctx context.Context, err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	var ofPod aboutThisPod
	if err != nil && !errors.As(err, &ofPod) {
		questions.WithLabelValues("failed").Inc()
		resting.Set(1)
		rest := c.pause()
		klog.FromContext(ctx).Error(err, "Cotenant is not asked for a while; pods are scheduled without it", "rest", rest)
		c.restsUntil = time.Now().Add(rest)
		return
	}
	if !c.restsUntil.IsZero() {
		klog.FromContext(ctx).Info("Cotenant answers again")
	}
	result := "answered"
	if err != nil {
		result = "refused"
		klog.FromContext(ctx).Error(err, "Cotenant refused a question; the pod is scheduled without it")
	}
	questions.WithLabelValues(result).Inc()
	resting.Set(0)
	c.restsUntil = time.Time{}
	c.failures = 0
}

// pause is an eighth of rest after one failure, and doubles: a burst should not lose its advice by one late answer.
func (c *client) pause() time.Duration {
	c.failures++
	if c.failures > 3 {
		return c.rest
	}
	return c.rest >> (4 - c.failures)
}

// sign sets the headers of a request.
func (c *client) sign(request *http.Request) error {
	request.Header.Set("Content-Type", "application/json")
	// To ask twice does no harm. With this key net/http.Transport asks again at once where a replica closes the open
	// connection; nothing of it is sent.
	request.Header["Idempotency-Key"] = nil
	// The service gives up when we do, because no caller would wait for its answer.
	request.Header.Set("X-Request-Timeout", strconv.FormatFloat(c.timeout.Seconds(), 'f', -1, 64))
	if c.tokenFile == "" {
		return nil
	}
	token, err := readToken(c.tokenFile)
	if err == nil {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return err
}

func (c *client) post(ctx context.Context, asked *question) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	body, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err == nil {
		err = c.sign(request)
	}
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, mostAnswered))
	if err != nil {
		return nil, err
	}
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return nil, aboutThisPod{fmt.Errorf("status %d: %.300s", response.StatusCode, text)}
	default:
		return nil, fmt.Errorf("status %d: %.300s", response.StatusCode, text)
	}
	found := &answer{}
	if err := json.Unmarshal(text, found); err != nil || found.Scores == nil {
		return nil, errors.New("the answer is not what Cotenant answers: it is no JSON with Scores")
	}
	for node, score := range found.Scores { // kube-scheduler fails a pod whose scores are out of range
		found.Scores[node] = min(max(score, 0), maxNodeScore)
	}
	return found, nil
}
