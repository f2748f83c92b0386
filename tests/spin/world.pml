/* What every model has: faults that may strike, links between two places, and the judge of what comes out.
 *
 * Messages are 1, 2, 3 in the order in which they are accepted. A model is one process: each turn of its loop is one
 * thing that happens, and all that could happen next is tried. At any time the faults may end for good ("healed");
 * then whatever can still happen happens, until nothing can, and the judge looks at what is missing.
 *
 * The numbers below come from the environment of the program, so that one build answers for all cells of a pattern.
 */
#define MESSAGES_MAX 3
#define CAPACITY 16

byte messages;      /* how many there are */
byte property;      /* what is judged: 2 3 4 5 6 7 12, and 60 for gap-free alone */
bool any;           /* frames may overtake each other (F4) */
byte data_losses;   /* F1: a frame with messages */
byte other_losses;  /* F2: any other frame */
byte copies;        /* F3 */
byte early_wakes;   /* F5: a deadline passes while something is on the way */
byte sender_crashes;    /* F8 */
byte crashes_before;    /* F10: the receiver, before it processes what arrives */
byte crashes_after;     /* F11: the receiver, after a message has come out */

c_decl {
  static int parameter(const char *name)
  {
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
  }
}

inline set_parameters() {
  c_code {
    now.messages = parameter("MESSAGES");
    now.property = parameter("PROPERTY");
    now.any = parameter("F4");
    now.data_losses = parameter("F1");
    now.other_losses = parameter("F2");
    now.copies = parameter("F3");
    now.early_wakes = parameter("F5");
    now.sender_crashes = parameter("F8");
    now.crashes_before = parameter("F10");
    now.crashes_after = parameter("F11");
  }
}

/* Links: what is on the way, the oldest first. Where frames overtake each other the order says nothing, so they are
 * kept sorted: fewer states, the same behaviour. */

typedef Link {
  byte frame[CAPACITY];
  byte size
}

byte at;            /* a place on a link */
byte from;
byte taken;

inline put(link, what) {
  assert(link.size < CAPACITY);
  at = link.size;
  do
  :: any && at > 0 && link.frame[at - 1] > what ->
     link.frame[at] = link.frame[at - 1];
     at--
  :: else -> break
  od;
  link.frame[at] = what;
  link.size++;
  at = 0
}

/* Any frame on the way. */
inline pick(link) {
  at = 0;
  do
  :: at + 1 < link.size -> at++
  :: break
  od
}

/* One that may arrive now: the oldest, or any. */
inline pick_arrival(link) {
  at = 0;
  do
  :: any && at + 1 < link.size -> at++
  :: break
  od
}

/* Takes the picked frame off the link, into "taken". */
inline take(link) {
  taken = link.frame[at];
  from = at + 1;
  do
  :: from < link.size -> link.frame[from - 1] = link.frame[from]; from++
  :: else -> break
  od;
  link.size--;
  link.frame[link.size] = 0;
  at = 0;
  from = 0
}

inline lose(link, budget) {
  budget--;
  pick(link);
  take(link);
  taken = 0
}

inline copy(link) {
  copies--;
  pick(link);
  taken = link.frame[at];
  put(link, taken);
  taken = 0
}

/* Faults end. */

bool healed;

inline heal() {
  healed = true;
  data_losses = 0;
  other_losses = 0;
  copies = 0;
  early_wakes = 0;
  sender_crashes = 0;
  crashes_before = 0;
  crashes_after = 0
}

/* The judge. */

byte submitted;                     /* messages 1 .. submitted are accepted */
bool out[MESSAGES_MAX + 1];         /* has come out */
bool confirmed[MESSAGES_MAX + 1];   /* the sender knows that it has */
byte highest;                       /* of those that came out */
bool kept = true;

inline comes_out(message) {
  assert(message >= 1 && message <= submitted);
  if
  :: property == 3 -> kept = !out[message]
  :: property == 4 -> kept = message >= highest
  :: property == 5 -> kept = message > highest
  :: property == 60 -> kept = message <= highest + 1
  :: property == 6 -> kept = message <= highest + 1 && message >= highest
  :: property == 7 -> kept = message <= highest + 1 && !out[message]
  :: else
  fi;
  assert(kept);
  out[message] = true;
  if
  :: message > highest -> highest = message
  :: else
  fi
}

/* Nothing can happen any more. */
inline judge_the_end() {
  assert(healed && submitted == messages);
  at = 1;
  do
  :: at <= messages ->
     if
     :: property == 2 -> kept = out[at]
     :: property == 12 -> kept = confirmed[at]
     :: else
     fi;
     assert(kept);
     at++
  :: else -> break
  od
}
