// The second half of the plots; story_plots.cpp joins them.
#include "data/story_generator.h"

namespace taper {
namespace {

constexpr std::string_view kBirthday =
    R"~({@open h} {@about h} Tomorrow was {h.his} birthday, and {h} could hardly wait.

But on {@weekday} morning neither {e} nor {f} said a word about it. {e} only [asked about the {@tool}|talked about the {@weather} weather|went on sweeping the {@near_room}]. {h} went to see {f}, the {f.kind} next door. "I have no time today," said {f}, and hid something {@color} behind {f.his} back.
{@sad h}. "They have all forgotten," {@whispered h}. {@walks h}. {h} sat there alone and watched {@seen} until it was almost dark.

When {h} came home, there was no light in the window. {h.He} opened the door, and suddenly {@many} candles were burning! "Surprise, {h}!" shouted {@many} voices. There stood {e} with {@treat}, and {f} with a {@toy} tied up in {@color} ribbon.
"[You did not forget|You knew it all along|You all came], {f}!" {@cried h}. "It was so hard to keep quiet," {@said f}. "I nearly told you {@count} times." They danced between the {@color} paper lanterns, and {e} played [the fiddle|an old harmonica|a {@material} drum].

{@glad h}. When everyone had gone home, {h} wrote {@count} thank-you notes, one of them to {@seen}. {@end h})~";

constexpr std::string_view kWish = R"~({m=@magic}
{@open h} {@about h} But {h} was never quite content. "If only I had more," {h.he} often said to {f}, a {f.kind} who was {h.his} neighbor.

{@one_day} {h} found a {m} beside the {@near}. When {h} [rubbed|touched|polished|shook] the {m.noun}, it spoke in {@voice}! "You may make three wishes," said the {m.noun}. "Be careful, {h}."
First {h} wished for a house as big as a castle, and there it stood, with {@many} towers. But it was [cold|empty|dusty], and it took {h} all {@part} to find the kitchen. Next {h} wished for a mountain of {s=@sweets}{s}. {h.He} ate until {h.his} belly hurt, and {f} could not even get through the door, because the {s} lay everywhere.

{@sad h}. "You have everything now," said {f} through the [window|keyhole]. "Why are you crying, {h}?" {h} looked at the {m}. "Because I have nobody to share it with," {@whispered h}. {@thinks h}.
Then {h} made the last wish. "I wish that everything was as it was [before|on {@weekday}|before I met you], {m.noun}!" {@cried h}. There was a flash of {@color} light, and {h} stood in front of {h.his} own little house again. {f} was waiting there with {@treat}.

{@glad h}. {h} gave the {m.noun} back to the {@water}, where it sank with {@many} bubbles. {@learned h f} {@moral_enough}. {@end h})~";

constexpr std::string_view kGrump =
    R"~({@open h} {@about h} Behind the {@near} lived {w}, an old {w.kind} in a {w.clothes}, who shouted at everyone that came too close.

{@one_day} {h.his} {@toy} flew over the fence and landed beside {w.his} door. "[Leave it there|Run|Stay here], {h}, or {w} will eat you with {@sweets}," said the others. {@afraid h}. But {h} walked up the path, past {@seen}, and knocked {@count} times.
"Go away, or I will throw {@missile}!" shouted {w}. "I only came to ask for my toy," {@said h}. "And I brought you {@treat}." For {@many} breaths there was no sound from {w} at all. Then the door opened, just as wide as a {@clothes}.

"Nobody has brought me anything for {@many} years," {@said w}. Inside, the walls were covered with pictures of [ships|the sea|circus horses|mountains], and a {@treasure} lay on the table. "Were you a [sailor|painter|clown|baker] once, {w}?" {@asked h}. And {w} told {h} about {@song}, and about a storm on a {@water}, until the sun went down over the {@near}.
"May I come again, {w}?" {@asked h}. {w} looked at {w.his} {w.clothes} and almost smiled. "Come on {@weekday}," {@said w}. "And bring {@treat}, {h}, and your friends, if they are not too loud."

{@glad w}. {@learned h w} {@moral_kind}. {@end h})~";

constexpr std::string_view kLostInWoods = R"~({q=@wild}
{@open h} {@about h} "Never go into the {q} alone," {e} had often said.

{@one_day} {h} saw a {@color} butterfly and ran after it, farther and farther. When it flew away, {h} did not know where {h.he} was. Every tree in the {q} looked the same. {@afraid h}.
"Is anyone there for {h} from the {@near}?" {@cried h}. Only {@seen} could be seen. {@sad h}. Then {@voice} came to {h} from a {@tree} tree. It belonged to {w}, a very old owl with {@eye} eyes. "Crying makes the path wet, but it does not make it shorter," said {w}.

"I want to go home," {@whispered h}. "Then use your ears and your nose," {@said w}. "What do you hear, {h}?" {h} listened. "I hear the {@water}," {@said h}. "And what do you smell, {h} of the {@near}?" {@asked w}. "I smell {@smell}," {@said h}. "That comes from {e} in the kitchen by the {@near}!"
"So you know the way already," {@said w}. {h} followed the smell, counted {@many} stones in the stream, and came out of the {q} right beside the {@near}. There stood {e} with a lantern, calling {h.his} name.

{@glad h}. "I should have listened to you," {@said h}, and {e} wrapped {h.him} in a warm {@clothes}. {@learned h e} {@moral_true}. {@end h})~";

constexpr std::string_view kMusic = R"~({i=@instrument}
{@open h} {@about h} {h} also had a {i}, but whenever {h.he} played it, it sounded like {@noise}.

{@one_day} there was a sign by the {@near}: "Big {@near} concert! Everyone with {@noisy_thing} and a {@clothes} may play." "I would love to, but they will laugh at my {i.noun}," {@said h}. {f}, a {f.trait} {f.kind} who played the drum, shook {f.his} head. "Then we will practice," {@said f}.
They practiced in the {@wild} where only {@seen} could hear them. {h} played, and {f} kept time: one, two, one, two. On the first day {h} and the {i.noun} sounded like {@noise}. On the {@ordinal} day it sounded a little like a song about {@song}.

At the concert, {h} stood in front of {@many} rows of chairs. {@afraid h}. {h} played one wrong note, and somebody giggled. Then {f} came up with {f.his} drum: one, two, one, two. {h} took a deep breath and played a tune about {@song}.
First a [baby|goose|grandmother|mailman] in a {@clothes} began to sway. Then {@many} feet were tapping, and in the end the whole crowd was dancing past the {@near}. "More, {h}! More, {f}!" they called {@many} times.

{@glad h}. {@learned h f} {@moral_try}. {@end h})~";

constexpr std::string_view kBaking = R"~({c=@cake}
{@open h} {@about h}

{@one_day} {h} and {e} wanted to bake a {c} for the {@near} fair. "You may measure everything yourself," {@said e}. {h} put on a {@clothes} and took {@many} eggs, a bag of flour, and a cup of sugar. At least, {h} thought that it was sugar in the {@color} bag.
{@while} the kitchen smelled of {@baking_smell}. {h} took a tiny taste of the {c}. {h} made a face like {@face}. "It tastes like [the sea|a salty pond|{@mess} with salt], {e}!" {@cried h}. What {h} had taken for sugar was salt.

{@sad h}. "The fair begins in {@count} minutes," {@whispered h}. {e} took a taste, made a face like {@face}, and began to laugh. "When I was small, I baked with soap," {@said e}. "I blew bubbles for {@count} days."
Then {h} had to laugh too. "What can we do with a salty {c}, {e}?" {@asked h}. {@thinks h}. They cut it into {@many} pieces and took it to the goats behind the {@near}, for goats love salt. The goats were so pleased that they gave {@many} pails of milk, and {h} and {e} sold sweet milk at the fair instead.

{@glad h}. Since then, {h} tastes everything first. {@learned h e} {@moral_try}. {@end h})~";

constexpr std::string_view kMitten = R"~({k=@warm_thing}{n=@many}{season=@winter}
{@open h} {@about h} When winter came, {e} knitted a {k} for {h}, with {@many} tiny stars on it.

One [frosty|snowy|chilly|crisp|windy|bright] {@part}, {h} went out to play in the snow. {h.He} built a snow bear, slid down a {@hill}, and followed the tracks of a [fox|hare|deer|very small bird|lost sheep]. Back home, the {k} was gone. "Oh no, {e} worked on it for {@many} evenings!" {@cried h}.
{h} went back along {h.his} own footprints. {@looks_around h}. Then {h.he} saw a bit of {@color} wool beside a fallen {@tree} tree. The {k} was lying in the snow, and it was moving!

Out of it peeked a mouse, and {h} counted {n} babies behind it, all pink and sleepy. "Is this your house, {h.kind} with the {h.clothes}?" asked the mouse in {@voice}. "Ours under the {@tree} tree was full of snow." {h} looked at the {k.noun} and felt the cold wind on {h.his} ears. {@thinks h}.
"Keep it until {@season_warm}," {@said h}. "Your {n} babies need it more than a {h.trait} {h.kind} like me." When {e} heard the story, {e.he} did not scold. "Then I will knit another one," {@said e}. "And {@many} very small {@color} blankets for the mice."

{@glad h}. {@learned h e} {@moral_share}. {@end h})~";

constexpr std::string_view kContest = R"~({z=@trophy}
{@open h} {@about h} {@best_friend h f}.

{@one_day} there was a painting contest at the [school|library|market] near the {@near}. The prize was a {z}. {h} mixed a {@color} that nobody had ever seen, and painted {@seen_pic}. {f} painted {@song_pic}.
But an hour before the end, {f} knocked over the water, and {f.his} picture turned into one big {@color} puddle. {@sad f}. "It was my only sheet of paper," {@whispered f}.

{h} looked at {h.his} own picture, which was nearly finished. {@thinks h}. Then {h.he} [cut it in two|turned it over|tore off half of it] and gave {f} the empty part. "Paint on this," {@said h}. "But then yours will be small," {@said f}. "Small pictures need less paint," {@said h}.
{h} and {f} hung their two pictures side by side, next to {@seen_in_picture}. The judge, a stern [goose|lady|mayor] in a {@clothes}, looked at them for {@count} minutes. "The pictures of {h} and {f} are really one," the judge declared. "It is called Friendship, and it wins the {z}!"

{@glad f}. {h} keeps the {z.noun} on odd days, and {f} keeps it on even days. {@learned h f} {@moral_share}. {@end h})~";

constexpr std::string_view kBoat = R"~({b=@boat}{wt=@water}
{@open h} {@about h} {@best_friend h f}.

{@one_day} the two friends took a {b} out on the {wt}. "Row to the left, toward the {@near}!" {@cried h}. "Row to the right, toward the {@near}!" {@cried f}. The {b} turned around and around like a {@toy} until {h} was dizzy. Then [an oar|the only paddle] slipped out of the {f.hands} of {f} and floated away.
Now the {b} drifted faster and faster, past {@seen}, toward the waterfall. {@afraid f}. "Do something, {h}!" {@cried f}. {@afraid h}.

"{h} is [too small|only a {h.kind}]," a duck called from the shore. But {h} had an idea. {h} took off {h.his} {h.clothes} and tied it to {f.his} {f.clothes}. At the end {h.he} tied a {@treasure}, swung it {@count} times over {h.his} head, and threw. It caught on a branch of a {@tree} tree!
"Now pull, both at the same time," {@said h}. "One, two, three, {h}!" {@cried f}. Pull by pull, the {b} came to the shore near the {@near}, and they fell into the grass and laughed.

{@glad f}. From then on, {h} and {f} counted together before every stroke on the {wt}. {@learned h f} {@moral_help}. {@end h})~";

constexpr std::string_view kBoast = R"~({s=@skill}
{@open h} {@about h} {h} was good at many things, and {h.he} talked about it all the time. "I can {s} better than anyone {@land}," {h.he} told {@many} [ducks|neighbors|sparrows|cousins].

{@one_day} {f} came to the {@near}. {f} was a {f.trait} {f.kind} in a plain {f.clothes}, and {f.he} did not boast at all. "Show us how you {s}, {h}!" the others called from the {@near}. {h} climbed on a {@material} barrel so that everyone could see {h.him}. But {h.he} was so busy bowing that {h.he} lost {h.his} balance and fell into a tub of {@mess}.
Everyone laughed except {f}. {@sad h}. {f} gave {h} a {@color} towel. "That happened to me once, with {@mess}," {@said f}. "Would you like to practice with me by the {@near}, {h}?"

"But who are you, with your {f.clothes}?" {@asked h}. "{f} won the golden {@prize_noun} {@count} times," said an old goat. "Did you not know, {h}?" {h} turned as red as a beet. "You are much better than I am, and you never said a word," {@whispered h}.
"There was no need," {@said f}. "It is more fun to {s} than to talk about it." So they went to the {@wild} together, and by {@weekday} {h} could {s} better than ever before.

{@glad h}. {@learned h f} {@moral_proud}. {@end h})~";

constexpr std::string_view kTidy = R"~({t=@toy}
{@open h} {@about h} But {h} never put anything away. {h.his} floor was covered with [socks|crayons|blocks], {@many} books, half of {@treat_plain}, and somewhere under it all a {t}.

{@one_day} {f} came by with {@treat}. "Bring your {t}, and we will play by the {@near}," {@said f}. {h} looked for it [under the bed|behind the door|on the shelf], and out fell {@indoor_junk}. "It must be here somewhere," {@said h}. {@while} {f} had eaten everything, and the {t.noun} was still missing.
{@sad h}. "I think that your room has swallowed it," {@said f}. "Rooms do that, {h}, when they are full of {@material} things." {@thinks h}.

"Then we will make the room thin again," {@said h}. They put the {@color} things in one box and the {@material} things in another. They found {@count} spoons, a {@treasure}, and a very surprised beetle. And at the bottom of it all lay the {t}!
"It was waiting for us," {@said f}. It was too late for the {@near}, so they played on the clean floor, where there was suddenly room for [dancing|a whole railway|a circus with {@many} elephants].

{@glad h}. Now every {@part} {h} puts {@count} things back where they live. {@end h})~";

constexpr std::string_view kStar = R"~({@open h} {@about h} Every evening {h} said good night to the stars, one by one.

{@one_day_night} one of them fell down with a [hiss|tinkle|soft plop] and landed behind the {@near}. {h} took a {@tool} and ran through the {@wild}. There, next to {@seen}, lay a small star. It was [warm|cold] and {@color}, and it was crying. "I leaned out too far [to look at|because I wanted to see] {@seen}," whispered the star. "Now I cannot get home to my {@many} {@color} sisters."
"I will help you," {@said h}. {h.He} wrapped it in a {@clothes}, and it glowed through the cloth like a lantern. First {h} climbed up a {@tree} tree, but the sky was still too high. Then {h} asked {w}, a {w.kind} who lived on top of a {@hill}.

"The higher you throw it, the harder it falls," {@said w}. "A star can only rise when it is happy, {h}, so find out what it likes." {h} asked the star, and the star said, "I like songs about {@song}."
So {h} and {w} sang to it, out of tune, for {@count} hours. The star began to giggle and to shine like {@many} {@color} candles. It rose as high as {h.his} {h.hands}, then as high as the {@tree} tree, and then it was only a {@color} spark among the others.

{@glad h}. Since that night, one star over the {@near} has always winked {@count} times at {h}. {@learned h w} {@moral_kind}. {@end h})~";

constexpr std::string_view kTrade =
    R"~({@open h} {@about h} {e} was ill, and what {e.he} needed most was {g=@medicine}{g}. But {h} had no money, only {a=@trade_a}{a}.

{@one_day} {h} went to the market by the {@near}. "May I trade {a} for {g}?" {@asked h}. The seller in the {@clothes} shook a [gray|curly|sleepy] head. "I have {@many} drawers full of those, but I do need {c=@trade_c}{c}." {h} did not give up. {@meets h f}.
"My {f.clothes} has a hole, and {a} would be just the thing to mend it," {@said f}. "I can give you {b=@trade_b}{b} for that." So {h} and {f} traded. Next, {h} met {@many} children who were sad about {@song}. One of them had {c} and looked at the {b.noun} with {@eye} eyes. So {b} went to the child with {@eye} eyes, and {c} went to {h}.

"I have it, {f}, I have {c}!" cried {h}, and ran so fast that {h.his} {h.clothes} flew behind {h.him}. The seller smiled and gave {h} {g}. "You walked in with {a}, and you walk out with {g}. That is a good {@weekday}'s work, {h}."
At home, {e} tasted a spoonful and sat up in bed. "How did you ever pay for it, {h}?" {@asked e}. And {h} told the story of {a}, {b}, and {c}, while {f} listened at the window and laughed.

{@glad h}. {@learned h e} {@moral_help}. {@end h})~";

constexpr std::string_view kEgg = R"~({@open h} {@about h}

{@one_day} {h} found {c=@egg}{c} in the grass beside the {@near}. "Someone has lost it," {@said h}. {@looks_around h}. Nobody by the {@near} had lost an egg. So {h} put it in a {@clothes} and carried it home as carefully as a {@treasure}.
"An egg needs to be warm, by day and by night," {@said e}. "Can you do that, {h}?" {h.He} kept it warm with {h.his} {h.hands}, and did not go out to play with {@creature}, not even on {@weekday}. The nights were long, and sometimes {h} was tired. "But the egg has only me," {@whispered h}.

Then {@one_day} there was a tiny crack, and then another. Out came a wet little {d=@hatchling}{d} with {@eye} eyes and {@count} {@color} [feathers|fluffs]! It looked at {h} and said, "Mama?" "I am {h}," {@said h}, laughing. "But you may call me what you like, {@color} little {d}."
The {d} followed {h} everywhere, even into the bathtub. It grew and grew, and when {season} came, it looked up at {@many} others passing by the {@near}. {h} understood. "Go with them," {@whispered h}. {@sad h}.

But the next year, on a {@weather} {@part}, there was a knock at the window. There sat the {d}, as big as {e}, and behind it stood {@many} little ones. {@glad h}. {@learned h e} {@moral_wait}. {@end h})~";

constexpr std::string_view kPromise = R"~({@open h} {@about h} {@best_friend h f}.

{@one_day} {f} showed {h} a secret place in the {@wild}, where {@secret}. "Promise that you will not tell anyone," {@said f}. "I promise," said {h}, and they shook hands on it.
The next {@part}, {h} met {w}, a {w.trait} {w.kind} with {t=@treat}{t}. "I know that you have a secret," {@said w}. "Tell me, {h}, and {t} will be yours." It smelled of {@smell}, and {h} had not had any breakfast. {@thinks h}.
"No, thank you," said {h} at last. "A promise tastes better than {@treat}." {w} offered a {@toy}, and then a {@toy} as well. But {h} only shook {h.his} head and walked on, past {@seen}, with a growling belly.

When {h} came to the secret place, {f} was there already, with a {@color} cloth and {@treat} for two. "{w} asked me the same thing," {@said f}. "I was a little afraid that you would tell, {h}." {h} sat down. "I was a little afraid too," {@said h}. "But only of my belly, which wanted {@treat}."
They laughed so loudly that {@many} sparrows flew up from the {@tree} tree. {@glad f}. {@learned h f} {@moral_true}. {@end h})~";

}  // namespace

const std::vector<std::string_view>& more_story_plots() {
  static const std::vector<std::string_view> plots = {kBirthday, kWish,   kGrump,   kLostInWoods, kMusic,
                                                      kBaking,   kMitten, kContest, kBoat,        kBoast,
                                                      kTidy,     kStar,   kTrade,   kEgg,         kPromise};
  return plots;
}

}  // namespace taper
