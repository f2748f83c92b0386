/* Continuous index (CI). The sender gives each message the next index; the receiver sends on in the order of indexes
 * and keeps what comes too early. Nobody confirms, nobody has a deadline.
 */
#include "hop.pml"
#include "indexed_receiver.pml"

byte last_index;                        /* the sender's */
byte index_of[MESSAGES_MAX + 1];        /* what each message carries */
bool crashed;

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
  :: crashes_before > 0 -> crashes_before--; forget_what_came()
  :: take_index(taken, index_of[taken]);
     send_on();
     crashed = false
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
