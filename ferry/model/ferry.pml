/*
 * The batcher's protocol: admission, forming, ownership, interruption, close.
 *
 * An atomic block is a section under the batcher's lock. Time is discrete and
 * passes only when nothing else can happen, so that every interleaving of one
 * moment is explored, and a batch that could have left in a moment and did not
 * is seen by the clock.
 *
 * A macro that begins with WITHOUT_ removes one mechanism. check.sh proves that
 * the whole model holds and that each removal is found.
 */

#ifndef CALLERS
#define CALLERS 3
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef BATCH
#define BATCH 2      /* inputs in a batch */
#endif
#ifndef BOUND
#define BOUND 3      /* inputs buffered or in flight */
#endif
#ifndef WAIT
#define WAIT 0       /* moments that the oldest may wait for company */
#endif
#ifndef HORIZON
#define HORIZON 1    /* callers arrive up to here */
#endif
#ifndef CLOSES
#define CLOSES HORIZON  /* close begins up to here */
#endif
#ifndef LANED
#define LANED 2      /* the first callers are in one lane, the others in none */
#endif
#define END   (HORIZON + CLOSES + WAIT + CALLERS + 3)
#define NEVER 200

#define OPEN 0
#define DRAINING 1
#define INTERRUPTED 2

#define OUTSIDE 0
#define QUEUED 1
#define OWNED 2
#define CLOSER 100   /* an owner beside the workers */

byte now;
byte phase;
byte state[CALLERS];
byte seq[CALLERS];       /* order of admission, from 1 */
byte since[CALLERS];     /* moment of admission */
byte owner[CALLERS];
byte completions[CALLERS];
bool admitted[CALLERS];
bool answered[CALLERS];
byte admissions;
byte held;
byte buffered;
bool drained;            /* close has emptied the queue */

bool busy;               /* the lane */
byte lastAnswer;         /* seq of the lane's last answer by a worker */
byte lastTaken;          /* seq of the lane's last input taken */

bool forming;            /* the forming lock */
byte opened;             /* batches begun and not sealed */
bool asleep;
byte alarm = NEVER;
bool wake;
byte alive = WORKERS;
bool idle[WORKERS];

hidden byte c;           /* scratch, within an atomic block only */
hidden byte best;
hidden byte count;
#ifdef WITHOUT_OLDEST_DEADLINE
byte restarted[WORKERS]; /* when the worker began to form */
#endif

#define IN_LANE(i) ((i) < LANED)
#define ELIGIBLE(i, mine) (state[i] == QUEUED && (!IN_LANE(i) || !busy || (mine)))

/* best is the oldest eligible input, or CALLERS; count is how many there are. */
inline look(mine) {
  best = CALLERS; count = 0; c = 0;
  do
  :: c < CALLERS ->
     if
     :: ELIGIBLE(c, mine) ->
        count++;
        if
        :: best == CALLERS -> best = c
        :: best < CALLERS && seq[c] < seq[best] -> best = c
        :: else
        fi
     :: else
     fi;
     c++
  :: else -> break
  od
}

#ifdef WITHOUT_OLDEST_DEADLINE
#define SINCE(w) restarted[w]
#else
#define SINCE(w) since[best]
#endif

#define FULL (WAIT == 0 || phase != OPEN || count >= BATCH)
#define READY(w) (count > 0 && (FULL || SINCE(w) + WAIT <= now))

/* rouse the sleeping worker if there is something to do, or to do earlier. */
inline stir() {
  look(false);
  if
  :: asleep && count > 0 && (FULL || since[best] + WAIT < alarm) ->
     asleep = false; wake = true
  :: else
  fi
}

inline complete(i) {
  completions[i]++;
  assert(completions[i] == 1)
}

inline enqueue(i) {
  assert(!drained);
  assert(phase == OPEN);
  held++; buffered++;
  assert(held <= BOUND);
  admissions++;
  seq[i] = admissions; since[i] = now;
  admitted[i] = true; state[i] = QUEUED;
  stir()
}

proctype Caller(byte i; byte arrives; byte leaves) {
#ifdef WITHOUT_ADMISSION_LOCK
  atomic {
    now >= arrives ->
    if
    :: phase == OPEN && held < BOUND
    :: else -> goto gone
    fi
  };
  atomic { enqueue(i) };
#else
  atomic {
    now >= arrives ->
    if
    :: phase == OPEN && held < BOUND -> enqueue(i)
    :: else -> goto gone
    fi
  };
#endif

  if
  :: answered[i]
  :: atomic {
       now >= leaves && !answered[i] ->
       if
       :: state[i] == QUEUED ->
#ifndef WITHOUT_LEAVING_OUT
          state[i] = OUTSIDE; held--; buffered--; seq[i] = 0; since[i] = 0;
#endif
          complete(i);
          if
          :: phase != OPEN && buffered == 0 && asleep -> asleep = false; wake = true
          :: else
          fi
       :: else  /* it runs, and its answer goes nowhere */
       fi
     }
  fi;
gone:
  skip
}

/* take moves the oldest eligible input to worker w. */
inline take(w) {
  if
  :: IN_LANE(best) ->
     assert(!busy || laneMine);  /* never in two batches */
     assert(seq[best] > lastTaken);
     lastTaken = seq[best];
#ifndef WITHOUT_LANES
     busy = true;
#endif
     laneMine = true
  :: else
  fi;
  mine[size] = best; size++
}

inline own(w, i) {
  state[i] = OWNED; owner[i] = w; buffered--
}

/* other workers' batches hold nothing of the lane that w has just taken. */
inline alone(w) {
  c = 0;
  do
  :: c < LANED ->
     assert(!(laneMine && state[c] == OWNED && owner[c] != w && owner[c] != CLOSER));
     c++
  :: else -> break
  od
}

proctype Worker(byte w) {
  byte size; byte mine[BATCH]; bool laneMine; byte k; byte done;

form:
#ifndef WITHOUT_FORMING_LOCK
  atomic { !forming -> forming = true };
#endif
#ifdef WITHOUT_OLDEST_DEADLINE
  restarted[w] = now;
#endif
watch:
  atomic {
    look(false);
    if
    :: phase != OPEN && buffered == 0 ->
       forming = false;
       goto stop
    :: else
    fi;
    if
    :: READY(w) ->
       opened++; assert(opened == 1);  /* not split between idle workers */
       idle[w] = false;
       take(w);
#ifndef WITHOUT_TAKE_AND_OWN
       own(w, mine[0]); alone(w);
#endif
       goto fill
    :: else ->
       alarm = (count > 0 -> SINCE(w) + WAIT : NEVER);
#ifndef WITHOUT_LOCKED_SLEEP
       asleep = true
#endif
    fi
  };
#ifdef WITHOUT_LOCKED_SLEEP
  asleep = true;
#endif
  if
  :: atomic { wake -> wake = false; goto watch }
  :: atomic { alarm < NEVER && now >= alarm -> asleep = false; goto watch }
  fi;

fill:
#ifdef WITHOUT_TAKE_AND_OWN
  atomic { own(w, mine[0]); alone(w) };
#endif
  do  /* chunks of one */
  :: atomic {
       look(laneMine);
       if
       :: size < BATCH && count > 0 -> take(w); own(w, mine[size - 1]); alone(w)
       :: else -> opened--; forming = false; break
       fi
     }
  od;

  atomic {
    if
    :: phase == INTERRUPTED -> done = 0  /* it is not run */
    :: phase != INTERRUPTED -> done = now
    :: phase != INTERRUPTED -> done = now + 1
#ifdef WITHOUT_RECOVERY
    :: phase != INTERRUPTED -> goto stop  /* run panics */
#endif
    fi
  };
  atomic {
    now >= done || phase == INTERRUPTED ->
#ifdef WITHOUT_ANSWER_BEFORE_RELEASE
    if
    :: laneMine -> busy = false; stir()
    :: else
    fi
  };
  atomic {
#endif
    held = held - size;
    k = 0;
    do
    :: k < size ->
       if
       :: IN_LANE(mine[k]) ->
          assert(seq[mine[k]] > lastAnswer);  /* a lane's answers are in order */
          lastAnswer = seq[mine[k]]
       :: else
       fi;
       complete(mine[k]);
       state[mine[k]] = OUTSIDE; answered[mine[k]] = true;
       seq[mine[k]] = 0; since[mine[k]] = 0; owner[mine[k]] = NEVER;
       mine[k] = 0; k++
    :: else -> break
    od;
    k = 0; done = 0
  };
  atomic {
    if
#ifndef WITHOUT_ANSWER_BEFORE_RELEASE
    :: laneMine ->
       busy = false;
#ifndef WITHOUT_STIR_ON_RELEASE
       stir()
#endif
#endif
    :: else
    fi;
    size = 0; laneMine = false; idle[w] = true;
    goto form
  };

stop:
  atomic { idle[w] = false; alive-- }
}

/* drain takes what is queued; the closer owns it from then on. */
inline drain() {
  c = 0;
  do
  :: c < CALLERS ->
     if
     :: state[c] == QUEUED ->
        state[c] = OWNED; owner[c] = CLOSER; held--; buffered--
     :: else
     fi;
     c++
  :: else -> break
  od;
  drained = true
}

proctype Closer(byte begins; byte gives) {
  byte k;
  now >= begins;
#ifdef WITHOUT_CLOSE_BEFORE_DRAIN
  skip;
#else
  atomic { phase = DRAINING; asleep = false; wake = true };
#endif
  if
  :: alive == 0 -> goto ended
  :: now >= gives
  fi;
#ifdef WITHOUT_CLOSE_BEFORE_DRAIN
  atomic { drain() };
  atomic { phase = INTERRUPTED; asleep = false; wake = true };
#else
  atomic { phase = INTERRUPTED; asleep = false; wake = true; drain() };
#endif
  atomic {
    k = 0;
    do
    :: k < CALLERS ->
       if
       :: owner[k] == CLOSER ->
          complete(k); state[k] = OUTSIDE; answered[k] = true;
          seq[k] = 0; since[k] = 0; owner[k] = NEVER
       :: else
       fi;
       k++
    :: else -> break
    od
  };
  alive == 0;
ended:
  atomic {
    assert(held == 0 && buffered == 0 && !busy && opened == 0);
    k = 0;
    do
    :: k < CALLERS -> assert(!admitted[k] || completions[k] == 1); k++
    :: else -> break
    od
  }
}

/* Clock lets time pass. An eligible input whose time is over must not see that
 * happen beside an idle worker. */
proctype Clock() {
  bool free;
  do
  :: now < END ->
     timeout ->
     atomic {
       look(false);
       free = false;
       c = 0;
       do
       :: c < WORKERS -> free = free || idle[c]; c++
       :: else -> break
       od;
       assert(!(free && count > 0 && since[best] + WAIT <= now));
       now++
     }
  :: else -> break
  od
}

init {
  byte i; byte begins; byte gives; byte arrives[CALLERS]; byte leaves[CALLERS];
  atomic {
    do
    :: i < CALLERS ->
       select(begins : 0 .. HORIZON);
       arrives[i] = begins;
       if
       :: leaves[i] = NEVER
       :: i == 1 -> leaves[i] = begins  /* the others never leave, as those with a callback */
       :: i == 1 -> leaves[i] = begins + 1
       fi;
       owner[i] = NEVER;
       i++
    :: else -> break
    od;
    select(begins : 0 .. CLOSES);
    if
    :: gives = begins
    :: gives = begins + 1
    :: gives = NEVER
    fi;
    run Clock();
    i = 0;
    do
    :: i < WORKERS ->
       idle[i] = true;
       run Worker(i);
       asleep;  /* the first waits for work, the others for it */
       i++
    :: else -> break
    od;
    run Closer(begins, gives);
    i = 0;
    do
    :: i < CALLERS -> run Caller(i, arrives[i], leaves[i]); arrives[i] = 0; leaves[i] = 0; i++
    :: else -> break
    od;
    i = 0; begins = 0; gives = 0
  }
}
