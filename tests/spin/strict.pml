/* Strict monotonic index (SM). The sender gives each message the next index. The receiver sends on a message whose
 * index is above that of the last one, and drops all others. Nobody confirms, nobody has a deadline.
 */
#include "hop.pml"

byte last_index;                        /* the sender's */
byte index_of[MESSAGES_MAX + 1];        /* what each message carries */
byte current;                           /* the receiver's */

inline submit() {
  submitted++;
  last_index++;
  index_of[submitted] = last_index;
  put(there, submitted)
}

inline get_message() {
  pick_arrival(there);
  take(there);
  if
  :: crashes_before > 0 -> crashes_before--; current = 0
  :: index_of[taken] > current ->
     comes_out(taken);
     if
     :: current = index_of[taken]
     :: crashes_after > 0 -> crashes_after--; current = 0
     fi
  :: index_of[taken] <= current
  fi;
  taken = 0
}

/* The index begins again. */
inline crash_sender() {
  sender_crashes--;
  last_index = 0
}

init {
  set_parameters();
  do
  :: atomic { submitted < messages -> submit() }
  :: atomic { there.size > 0 -> get_message() }
  :: atomic { sender_crashes > 0 -> crash_sender() }
  ROUTE_AND_END
  od;
  judge_the_end()
}
