package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Process is one program of the product that can be started again and again with the same files and ports. It never
// outlives the process that started it.
type Process struct {
	Name string
	// Ready is the URL that answers 200 when the process is at work.
	Ready string

	binary string
	args   []string
	env    []string
	log    string

	file     string   // of its settings
	settings Settings // as they were written last

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
	err    error         // how it ended
	asked  bool          // somebody here ended it
	died   []string
}

// NewProcess describes a program that answers at the URL ready once it is at work, and whose output goes to the file log.
func NewProcess(name, binary string, args []string, ready, log string) *Process {
	return &Process{Name: name, Ready: ready, binary: binary, args: args, log: log}
}

// readyPoll is how often a starting process is asked.
const readyPoll = 10 * time.Millisecond

// Launch starts the process without waiting for it to be ready. Its output is appended to its log.
func (p *Process) Launch() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	// Its context never ends it: it is ended by signals alone.
	cmd := exec.CommandContext(context.Background(), p.binary, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	exited, started := make(chan struct{}), make(chan error)
	p.mu.Lock()
	p.cmd, p.exited, p.asked = cmd, exited, false
	p.mu.Unlock()
	go p.run(cmd, log, started, exited)
	if err := <-started; err != nil {
		<-exited
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	return nil
}

// run keeps the thread that started the process, since the process dies with it.
func (p *Process) run(cmd *exec.Cmd, log io.Closer, started chan<- error, exited chan<- struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(exited)
	defer func() { _ = log.Close() }()
	err := cmd.Start()
	started <- err
	if err != nil {
		return
	}
	err = cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	if !p.asked {
		p.died = append(p.died, fmt.Sprintf("%s ended by itself: %v", p.Name, cmd.ProcessState))
	}
}

// Start launches the process and returns when it is ready.
func (p *Process) Start(ctx context.Context) error {
	if err := p.Launch(); err != nil {
		return err
	}
	return p.WaitReady(ctx)
}

// WaitReady returns when the process answers that it is ready, or with an error when it has ended or ctx has.
func (p *Process) WaitReady(ctx context.Context) error {
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		if status, err := get(ctx, p.Ready); err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.ended():
			return fmt.Errorf("%s ended before it was ready, see %s", p.Name, p.log)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready, see %s: %w", p.Name, p.log, ctx.Err())
		}
	}
}

func get(ctx context.Context, url string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// Log is the file that the process's output is in.
func (p *Process) Log() string { return p.log }

// PID of the running process.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Running says whether the process has been started and has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.ended():
		return false
	default:
		return true
	}
}

// ended is closed while no process runs.
func (p *Process) ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exited == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	return p.exited
}

// Kill ends the process by SIGKILL and returns when it is gone.
func (p *Process) Kill() error {
	if err := p.end(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.ended()
	return nil
}

// Pause stops the process by SIGSTOP and returns when it stands still.
func (p *Process) Pause(ctx context.Context) error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		fields, err := procStat(p.PID())
		if err != nil || fields[0] == "T" {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s does not stop: %w", p.Name, ctx.Err())
		}
	}
}

// Resume continues a paused process.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// Reconfigure lays settings over those of the process's file, and has it read the file again.
func (p *Process) Reconfigure(s Settings) error {
	p.settings = p.settings.with(s)
	if err := p.settings.write(p.file); err != nil {
		return err
	}
	return p.signal(syscall.SIGHUP)
}

// Terminate asks the process to end, by SIGTERM, and fails unless it does so with status 0 before ctx ends.
func (p *Process) Terminate(ctx context.Context) error {
	if err := p.end(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended():
	case <-ctx.Done():
		return fmt.Errorf("%s ignores SIGTERM: %w", p.Name, ctx.Err())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return fmt.Errorf("%s ended badly, see %s: %w", p.Name, p.log, p.err)
	}
	return nil
}

func (p *Process) end(s syscall.Signal) error {
	p.mu.Lock()
	p.asked = true
	p.mu.Unlock()
	return p.signal(s)
}

func (p *Process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.cmd.Process == nil {
		return fmt.Errorf("signal %s: not started", p.Name)
	}
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Died tells of every time that the process ended although nobody here ended it.
func (p *Process) Died() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.died...)
}

// Close kills the process where it runs.
func (p *Process) Close() error {
	if !p.Running() {
		return nil
	}
	return p.Kill()
}
