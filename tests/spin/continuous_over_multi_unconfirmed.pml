/* Continuous index over re-send with several unconfirmed messages (CI over RM). The outer sender gives a message its
 * index, the inner one sends both until they are confirmed. For the inner receiver to send on is to give the message
 * to the outer one; then it confirms, whether the outer one sends it on at once, keeps it, or drops it.
 */
#include "hop.pml"
#include "indexed_receiver.pml"

byte last_index;                        /* the outer sender's */
byte index_of[MESSAGES_MAX + 1];        /* what each message carries */
bool unconfirmed[MESSAGES_MAX + 1];     /* the inner sender's */
bool crashed;
byte again;

#define HAS_UNCONFIRMED (unconfirmed[1] || unconfirmed[2] || unconfirmed[3])

inline submit() {
  submitted++;
  last_index++;
  index_of[submitted] = last_index;
  unconfirmed[submitted] = true;
  put(there, submitted)
}

inline get_confirm() {
  pick_arrival(back);
  take(back);
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
     :: unconfirmed[again] -> put(there, again)
     :: else
     fi;
     again++
  :: else -> break
  od;
  again = 0
}

/* A crash takes both receivers. Before the confirm leaves, or after it: what the outer one keeps is gone. */
inline get_message() {
  pick_arrival(there);
  take(there);
  if
  :: crashes_before > 0 -> crashes_before--; forget_what_came()
  :: take_index(taken, index_of[taken]);
     send_on();
     if
     :: crashed -> crashed = false
     :: !crashed -> put(back, taken)
     :: !crashed && crashes_after > 0 -> crashes_after--; put(back, taken); forget_what_came()
     fi
  fi;
  taken = 0
}

/* The index begins again, and what is unconfirmed is gone. */
inline crash_sender() {
  sender_crashes--;
  last_index = 0;
  unconfirmed[1] = false;
  unconfirmed[2] = false;
  unconfirmed[3] = false
}

init {
  set_parameters();
  do
  :: atomic { submitted < messages -> submit() }
  :: atomic { there.size > 0 -> get_message() }
  :: atomic { back.size > 0 -> get_confirm() }
  :: atomic { HAS_UNCONFIRMED && IS_QUIET -> send_again() }
  :: atomic { HAS_UNCONFIRMED && !IS_QUIET && early_wakes > 0 -> early_wakes--; send_again() }
  :: atomic { sender_crashes > 0 -> crash_sender() }
  ROUTE_AND_END
  od;
  judge_the_end()
}
