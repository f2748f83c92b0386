/* Stream (ST). The sender puts messages in a stream, which confirms them, and sends again what is unconfirmed. The
 * stream gives each entry the next index, and may hold a message twice. The receiver reads its index from the index
 * store, fetches from there, sends on, commits the index that comes next, and fetches again.
 *
 * A fetch that finds nothing waits at the stream for the next entry; only the latest one waits.
 */
#include "world.pml"

#define LOG_MAX 8

Link to_stream;         /* messages */
Link to_sender;         /* confirms */
Link fetches;           /* an index each */
Link entries;           /* first and last index of what they bring: first * 16 + last */
Link commits;           /* an index each, 0 asks for the index */
Link indexes;           /* an index each */

#define IS_QUIET (to_stream.size == 0 && to_sender.size == 0 && fetches.size == 0 && \
                  entries.size == 0 && commits.size == 0 && indexes.size == 0)

/* The sender. */

bool unconfirmed[MESSAGES_MAX + 1];
byte again;

#define HAS_UNCONFIRMED (unconfirmed[1] || unconfirmed[2] || unconfirmed[3])

inline submit() {
  submitted++;
  unconfirmed[submitted] = true;
  put(to_stream, submitted)
}

inline get_confirm() {
  pick_arrival(to_sender);
  take(to_sender);
  if
  :: unconfirmed[taken] -> unconfirmed[taken] = false; confirmed[taken] = true
  :: else
  fi;
  taken = 0
}

inline send_again() {
  again = 1;
  do
  :: again <= MESSAGES_MAX ->
     if
     :: unconfirmed[again] -> put(to_stream, again)
     :: else
     fi;
     again++
  :: else -> break
  od;
  again = 0
}

/* What is unconfirmed is in memory only. */
inline crash_sender() {
  sender_crashes--;
  unconfirmed[1] = false;
  unconfirmed[2] = false;
  unconfirmed[3] = false
}

/* The stream. */

byte log[LOG_MAX + 1];
byte log_size;
byte fetched;           /* the index of the fetch that waits, 0 for none */

inline give_what_is_fetched() {
  if
  :: fetched > 0 && fetched <= log_size -> put(entries, fetched * 16 + log_size); fetched = 0
  :: else
  fi
}

inline append() {
  pick_arrival(to_stream);
  take(to_stream);
  assert(log_size < LOG_MAX);
  log_size++;
  log[log_size] = taken;
  put(to_sender, taken);
  give_what_is_fetched();
  taken = 0
}

inline get_fetch() {
  pick_arrival(fetches);
  take(fetches);
  fetched = taken;
  give_what_is_fetched();
  taken = 0
}

/* The receiver. */

byte index;             /* the next to be sent on, 0 while it is not known */
byte next;              /* of the entries at hand */
byte last;
bool has_sent_on;
bool crashed;

inline ask() {
  if
  :: index > 0 -> put(fetches, index)
  :: else -> put(commits, 0)
  fi
}

inline start_receiver() {
  index = 0;
  ask()
}

inline get_index() {
  pick_arrival(indexes);
  take(indexes);
  if
  :: crashes_before > 0 -> crashes_before--; start_receiver()
  :: index == 0 -> index = taken; ask()
  :: index > 0
  fi;
  taken = 0
}

inline send_on() {
  next = taken / 16;
  last = taken % 16;
  do
  :: !crashed && next <= last && next < index -> next++
  :: !crashed && next <= last && next >= index ->
     index = next + 1;
     comes_out(log[next]);
     has_sent_on = true;
     next++;
     if
     :: skip
     :: crashes_after > 0 -> crashes_after--; crashed = true
     fi
  :: crashed || next > last -> break
  od;
  next = 0;
  last = 0
}

/* After the last message the index is committed; a crash may fall before and after that. */
inline get_entries() {
  pick_arrival(entries);
  take(entries);
  if
  :: crashes_before > 0 -> crashes_before--; start_receiver()
  :: index == 0
  :: index > 0 ->
     send_on();
     if
     :: crashed -> crashed = false; start_receiver()
     :: !crashed && has_sent_on -> put(commits, index); ask()
     :: !crashed && has_sent_on && crashes_after > 0 ->
        crashes_after--;
        put(commits, index);
        start_receiver()
     :: !crashed && !has_sent_on
     fi;
     has_sent_on = false
  fi;
  taken = 0
}

/* To ask once more would change nothing while the question waits at the stream. */
#define MAY_ASK (index == 0 || fetched != index)

/* The index store. */

byte committed = 1;

inline get_commit() {
  pick_arrival(commits);
  take(commits);
  if
  :: taken == 0 -> put(indexes, committed)
  :: taken > committed -> committed = taken
  :: else
  fi;
  taken = 0
}

#define MAY_LOSE(link, budget) atomic { budget > 0 && link.size > 0 -> lose(link, budget) }
#define MAY_COPY(link) atomic { copies > 0 && link.size > 0 -> copy(link) }

init {
  atomic { set_parameters(); start_receiver() };
  do
  :: atomic { submitted < messages -> submit() }
  :: atomic { to_stream.size > 0 -> append() }
  :: atomic { to_sender.size > 0 -> get_confirm() }
  :: atomic { fetches.size > 0 -> get_fetch() }
  :: atomic { entries.size > 0 -> get_entries() }
  :: atomic { commits.size > 0 -> get_commit() }
  :: atomic { indexes.size > 0 -> get_index() }
  :: atomic { HAS_UNCONFIRMED && IS_QUIET -> send_again() }
  :: atomic { HAS_UNCONFIRMED && !IS_QUIET && early_wakes > 0 -> early_wakes--; send_again() }
  :: atomic { MAY_ASK && IS_QUIET -> ask() }
  :: atomic { !IS_QUIET && early_wakes > 0 -> early_wakes--; ask() }
  :: atomic { sender_crashes > 0 -> crash_sender() }
  :: MAY_LOSE(to_stream, data_losses)
  :: MAY_LOSE(entries, data_losses)
  :: MAY_LOSE(to_sender, other_losses)
  :: MAY_LOSE(fetches, other_losses)
  :: MAY_LOSE(commits, other_losses)
  :: MAY_LOSE(indexes, other_losses)
  :: MAY_COPY(to_stream)
  :: MAY_COPY(entries)
  :: MAY_COPY(to_sender)
  :: MAY_COPY(fetches)
  :: MAY_COPY(commits)
  :: MAY_COPY(indexes)
  :: atomic { !healed -> heal() }
  :: else -> break
  od;
  judge_the_end()
}
