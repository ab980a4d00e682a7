package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"terraform-provider-cotenant/rest"
)

const (
	mostAnswered = 64 << 20 // bytes of an answer: 200 instances with some candidates each, on 10,000 hosts
	timeout      = 60 * time.Second
	othersWrite  = 0o022 // the group must not write, either: who writes the token chooses who asks
	othersRead   = 0o004
)

var tokenPattern = regexp.MustCompile(`^[\x21-\x7e]+$`)

// refused is the service's answer that something in the question is wrong.
type refused struct{ rest.Problem }

func (r *refused) Error() string {
	text := r.Detail
	if r.Field != nil && !strings.Contains(text, *r.Field) {
		text = *r.Field + ": " + text
	}
	return fmt.Sprintf("%s (%s)", text, r.Code)
}

// client asks the service. Its questions change nothing there, so it asks again when the service is busy or away.
type client struct {
	url       *url.URL
	token     string // empty = none, or the file's
	tokenFile string
	http      *retryablehttp.Client
}

// newClient checks the address and the token without a request. The rules are those of the Python client.
func newClient(address, tokenFile string) (*client, error) {
	parsed, err := url.Parse(strings.TrimRight(address, "/"))
	if err != nil || (parsed.Scheme != "https" && parsed.Scheme != "http") || parsed.Hostname() == "" {
		return nil, errors.New("url is no URL such as https://cotenant.example")
	}
	if parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return nil, errors.New("url holds a user, query or fragment; give the base URL, and a token by token_file")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	asking := retryablehttp.NewClient()
	asking.Logger = nil
	asking.RetryMax = 3
	asking.RetryWaitMin, asking.RetryWaitMax = 250*time.Millisecond, 8*time.Second
	asking.ErrorHandler = retryablehttp.PassthroughErrorHandler // the last answer says what is wrong
	// A redirect would carry the question, and maybe the token, to somewhere else.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	asking.HTTPClient = &http.Client{Transport: transport, Timeout: timeout, CheckRedirect: stay}
	made := &client{url: parsed, tokenFile: tokenFile, http: asking}
	if tokenFile == "" {
		made.token = os.Getenv("COTENANT_TOKEN")
	}
	token, err := made.readToken()
	if err != nil {
		return nil, err
	}
	if token != "" && !mayCarryToken(parsed) {
		return nil, fmt.Errorf("the token is not sent to %s: use https, a service on this machine, or "+
			"COTENANT_TOKEN_OVER_HTTP=1 where no other machine can listen", parsed)
	}
	return made, nil
}

// readToken gives the token, which may be renewed in its file; empty = none.
func (c *client) readToken() (string, error) {
	token := c.token
	if c.tokenFile != "" {
		status, err := os.Stat(c.tokenFile)
		if err != nil {
			return "", fmt.Errorf("token_file: %w", err)
		}
		if mode := status.Mode().Perm(); mode&(othersRead|othersWrite) != 0 {
			return "", fmt.Errorf("token_file %s is refused because others may read or change it (mode %03o); chmod 640 it",
				c.tokenFile, mode)
		}
		text, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return "", fmt.Errorf("token_file: %w", err)
		}
		token = strings.TrimSpace(string(text))
	} else if token == "" {
		return "", nil
	}
	if len(token) > 4096 || !tokenPattern.MatchString(token) {
		return "", errors.New("the token is empty or holds blanks, line ends or other than ASCII characters")
	}
	return token, nil
}

// mayCarryToken reports whether a token may be sent there: over plain HTTP only to this machine, unless a variable allows
// it.
func mayCarryToken(to *url.URL) bool {
	host := to.Hostname()
	address := net.ParseIP(host)
	return to.Scheme == "https" || host == "localhost" || (address != nil && address.IsLoopback()) ||
		os.Getenv("COTENANT_TOKEN_OVER_HTTP") == "1"
}

// place asks where these instances should go, each as if those before it were placed. Nothing is held or stored.
func (c *client) place(ctx context.Context, question rest.BatchBody) ([]rest.Recommendation, error) {
	dry := true
	question.DryRun = &dry
	status, text, err := c.post(ctx, "/v1/placements:batch", question)
	if err != nil {
		return nil, fmt.Errorf("%s does not answer as a Cotenant service: %w", c.url, err)
	}
	if status != http.StatusOK {
		var problem rest.Problem
		if json.Unmarshal(text, &problem) != nil || problem.Detail == "" {
			return nil, fmt.Errorf("%s answers with status %d and no sentence: it may be no Cotenant service", c.url, status)
		}
		return nil, &refused{problem}
	}
	var answered rest.BatchAnswer
	if err := json.Unmarshal(text, &answered); err != nil {
		return nil, fmt.Errorf("%s does not answer as a Cotenant service: %w", c.url, err)
	}
	if len(answered.Answers) != len(question.Instances) {
		return nil, fmt.Errorf("%s answers for %d of %d instances", c.url, len(answered.Answers), len(question.Instances))
	}
	return answered.Answers, nil
}

// post gives the status and the body of the answer, of which it reads at most mostAnswered bytes.
func (c *client) post(ctx context.Context, path string, question any) (int, []byte, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return 0, nil, err
	}
	request, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, c.url.String()+path, body)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	token, err := c.readToken()
	if err != nil {
		return 0, nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, mostAnswered))
	return response.StatusCode, text, err
}
