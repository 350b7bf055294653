// The words of the story generator. The template language is described in story_generator.h.
#include "data/story_generator.h"

namespace taper {

const std::vector<WordList>& story_words() {
  static const std::vector<WordList> lists = {
      // ---- names and kinds
      {"girl_name",
       "Ada|Agatha|Alice|Amelia|Annika|Astrid|Beatrix|Bonnie|Camila|Celia|Chloe|Claire|Delia|Dina|Eliza|Esme|Esther|"
       "Eva|Fatima|Fiona|Frida|Georgia|Gloria|Grace|Hattie|Helen|Ingrid|Irene|Isla|Jana|Jasmine|Josie|Julia|Kate|Katya|"
       "Lara|Laura|Lena|Linnea|Lola|Lotte|Mabel|Maggie|Margot|Matilda|Mei|Mina|Miriam|Naomi|Nina|Odette|Paula|Petra|"
       "Phoebe|Rachel|Rosa|Sadie|Salma|Selma|Sigrid|Silvia|Sonja|Tara|Tess|Tina|Uma|Valerie|Winnie|Yara|Zara|Lily|Mia|"
       "Anna|Rosie|Clara|Nora|Ella|Sophie|Tilly|Ruby|Hazel|Ivy|Daisy|Molly|Penny|Zoe|Lucy|Emma|Maya|Olive|Sara|Greta|"
       "Freya|Amina|Leila|Priya|Yuki|Ines|Carmen|Nadia|Elsa|Wren|Poppy|Juno|Alma|Edith|Flora|Hanna|Kira|Luna|Marta|"
       "Nell|Opal|Pearl|Rita|Stella|Thea|Una|Vera|Willa|Abby|Bella|Cora|Dora|Etta|Fern|Gwen|Heidi|Iris|Joy"},
      {"boy_name",
       "Abel|Adam|Ahmed|Albie|Alexei|Anders|Anton|Axel|Basti|Benno|Boris|Bruno|Casper|Cedric|Clem|Cody|Damian|Dario|"
       "Diego|Edgar|Edwin|Elias|Emmett|Enzo|Ezra|Fabian|Fergus|Flynn|Gabriel|Gavin|Gideon|Gilbert|Hans|Hector|Ian|Igor|"
       "Isaac|Jamal|Joel|Jonah|Joseph|Julian|Karl|Kenneth|Lars|Leon|Lukas|Magnus|Marco|Mateo|Matt|Mikko|Nils|Olaf|Oren|"
       "Oskar|Otis|Paco|Percy|Philip|Rafael|Rory|Rufus|Silas|Stefan|Sven|Tariq|Tobias|Viktor|Wesley|Tim|Ben|Max|Sam|"
       "Tom|Leo|Jack|Finn|Oscar|Henry|Noah|Eli|Theo|Hugo|Felix|Omar|Ravi|Kenji|Pablo|Luca|Milo|Otto|Arthur|Emil|Jonas|"
       "Niko|Samir|Toby|Walter|Alfie|Barney|Caleb|Dexter|Ethan|Freddy|George|Harvey|Ivan|Jasper|Kai|Louis|Martin|Nate|"
       "Oliver|Peter|Quinn|Robin|Simon|Tyler|Victor|Will|Xavier|Yusuf|Zack|Andy|Billy|Charlie|David|Erik|Frank"},
      {"girl_pet_name",
       "Apple|Blossom|Breeze|Bubbles|Buttercup|Cherry|Chestnut|Cricket|Cupcake|Dimple|Dumpling|Echo|Fluff|Freckles|"
       "Gingersnap|Hazelnut|Ivory|Jingle|Juniper|Lavender|Lemon|Meadow|Minty|Mittens|Moonbeam|Mopsy|Muffin|Olivette|"
       "Pansy|Peaches|Petal|Plum|Primrose|Raindrop|Saffron|Sprinkle|Sugarplum|Thistle|Truffle|Willow|Pip|Dotty|Misty|"
       "Clover|Pepper|Honey|Maple|Snowdrop|Twinkle|Bramble|Velvet|Button|Cinnamon|Dandelion|Feather|Ginger|Hopscotch|"
       "Jellybean|Lulu|Marigold|Nutmeg|Pebbles|Queenie|Ripple|Sunny|Tulip|Violet|Whisper|Zuzu|Acorn"},
      {"boy_pet_name",
       "Ajax|Barnacle|Bounce|Bristle|Brownie|Bubba|Burdock|Captain|Chip|Cobble|Comet|Copper|Crumpet|Dash|Doodle|Fennel|"
       "Flapjack|Fuzz|Grumble|Hopper|Hugbert|Jolly|Kipper|Marble|Mumble|Nugget|Paddle|Peanut|Pogo|Puddle|Radish|Ruffle|"
       "Scamper|Skip|Snuffle|Sparky|Tugboat|Turnip|Twig|Whiskers|Biscuit|Bumble|Rusty|Patch|Flip|Thimble|Nibbles|Scout|"
       "Waffles|Bandit|Chester|Digby|Fidget|Gus|Hobnob|Jumper|Mango|Noodle|Oakley|Pickle|Quill|Rocket|Smudge|Tumble|"
       "Waddle|Ziggy|Basil|Cocoa|Dusty|Moss"},
      {"elder_woman",
       "[Grandma|Granny|Aunt|Great-aunt] "
       "[Rose|May|Pearl|Agnes|Martha|Ada|Betty|Olga|Ruth|Nina|Dolly|Fay|Joan|Ida|Kate]"},
      {"elder_man",
       "[Grandpa|Uncle|Old|Farmer] [Joe|Albert|Fred|Gus|Harold|Ned|Ralph|Stan|Walt|Abe|Carl|Ernie|Jim|Lou|Pete]"},
      {"trait",
       "curious|brave|gentle|cheerful|quiet|clever|dreamy|kind|lively|gentle-hearted|good-natured|quick|bright|polite|"
       "humble|loyal|thoughtful|playful|patient|stubborn|careful|friendly|shy|merry|polite|eager|honest|restless|"
       "sleepy|hopeful|proud|adventurous|imaginative"},
      {"size", "little|small|tiny|young|wee"},
      // ---- looks and ways
      {"color", "red|blue|green|yellow|purple|orange|pink|silver|golden|white|brown|gray|turquoise|scarlet|cream"},
      {"clothes", "{@color} [hat|scarf|coat|jacket|cap|sweater|vest|ribbon|apron|raincoat|backpack|belt]"},
      {"material", "wooden|paper|tin|woolen|glass|clay|cardboard|leather|silk|straw"},
      {"hobby",
       "collecting [smooth|shiny|speckled|round] pebbles|counting [clouds|birds|stars|snails|ladybugs]|jumping over "
       "puddles|drawing pictures of [ships|castles|dragons|friendly giants|whales]|singing [silly|sleepy|made-up] "
       "songs|climbing trees|reading [adventure|fairy|animal] stories|watching [ants|bees|boats|trains] go by|building "
       "towers out of [sticks|stones|blocks|boxes]|telling jokes|baking [cookies|bread|muffins]|picking [daisies|wild "
       "berries|bluebells]|skipping stones|playing hide-and-seek|making [paper boats|flower crowns|mud pies]|looking "
       "for [four-leaf clovers|feathers|snail shells]|listening to the rain|rolling down grassy hills|asking "
       "questions|whistling along with the birds|flying kites|digging holes|feeding the ducks|dancing in the kitchen"},
      {"habit",
       "{x.he} said good morning to the [sparrows|old apple tree|mailbox|garden snails|goldfish]|{x.he} watered the "
       "[sunflowers|beans|tomatoes|roses]|{x.he} looked out of the [round|little|attic|kitchen] window and made a "
       "plan|{x.he} ate {@treat} and hummed a tune|{x.he} put on {x.his} {x.clothes} and went outside to "
       "explore|{x.he} practiced standing on one leg|{x.he} swept the [steps|path|porch] and fed the [birds|cat|hens]"},
      {"looks",
       "[bright|big|round|shiny|twinkling] {@eye} eyes and a [soft|loud|funny|tiny|squeaky] [voice|laugh]|a "
       "{x.clothes} that {x.he} wore every day|the [loudest|softest|silliest|warmest] laugh {@land}|a "
       "[lucky|special|favorite] {x.clothes} with [three|four|five|seven] [buttons|patches|pockets|stripes]"},
      {"eye", "brown|blue|green|gray|hazel|black"},
      {"land",
       "in the whole [village|valley|town|forest|street|kingdom]|on this side of the [river|mountains|hills]|for miles "
       "around"},
      // ---- places and times
      {"home",
       "in a [small|cozy|crooked|tidy|yellow|snug|tall|creaky|round] [house|cottage|cabin] [by|near|beside] the "
       "{@near}|at the edge of a [quiet|busy|sunny|sleepy|windy] [village|town]|on a [little|hilly|windy|green] farm "
       "[by|near|behind] the {@near}"},
      {"animal_home",
       "in a [cozy|snug|warm|tidy|little|deep] [den|nest|hollow|nook] [by|near|beside] the {@near}|under the roots of "
       "a [tall|crooked|mossy|very old] {@tree} tree|in the hedge behind a [quiet|busy|sunny] "
       "[farm|mill|school|bakery]"},
      {"near",
       "[lake|sea|railway|mill|bakery|school|harbor|lighthouse|windmill|market|bridge|stream|waterfall|library|"
       "blueberry patch|old castle|apple orchard|post office|sawmill|duck pond|town clock|barn|brick wall|bell "
       "tower|ferry|fountain|rose garden|beehives|quarry|chapel|village well|potato field|bandstand|boathouse|toy "
       "shop|bus stop|water tower]"},
      {"tree", "oak|willow|apple|cherry|pine|chestnut|maple|birch|pear|plum|beech"},
      {"wild",
       "[deep|quiet|green|shady|whispering|tangled|misty|golden|sunny|wild|mossy|secret] "
       "[forest|woods|meadow|valley|orchard|garden|jungle|field|park]"},
      {"water",
       "[wide|sparkling|slow|cold|clear|lazy|rushing|silver|deep|winding] [river|lake|pond|brook|stream|canal]"},
      {"hill", "[steep|windy|round|grassy|rocky|snowy|tall|lonely] [hill|mountain|cliff|ridge]"},
      {"weather",
       "sunny|windy|foggy|chilly|bright|warm|cloudy|crisp|golden|drizzly|frosty|sleepy|breezy|lovely|misty|gray"},
      {"part", "morning|afternoon|day|evening|Saturday|Sunday|Monday|Friday|Tuesday|Thursday|Wednesday"},
      {"weekday", "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"},
      {"ordinal", "third|fourth|fifth|sixth|seventh|eighth|ninth|tenth"},
      {"season", "spring|summer|autumn|winter"},
      {"one_day",
       "one {@weather} {day},|one {@weather} {day} in [early|late|the middle of] {season},|on a {@weather} {day},|one "
       "{@weather} {day} in {season},|one {day}, when the [air smelled of {@smell}|wind was "
       "[soft|strong|cold|warm]|birds were [singing|quiet|busy]|clouds looked like [sheep|castles|whales|pillows]],"},
      {"smell", "rain|fresh bread|pine needles|cut grass|warm apples|roses|snow|honey|wood smoke|lemon cake"},
      {"while",
       "after {@count} minutes,|before long,|a little later,|at last,|after a while,|soon,|just then,|by the time the "
       "[church bell|kitchen clock|town clock] struck {@count},"},
      {"count", "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"},
      {"many", "three|four|five|six|seven|eight|nine|ten|a dozen|twenty"},
      // ---- things
      {"toy",
       "[{@color}|shiny|bouncy|striped|spotted] ball|[{@color}|long-tailed|{@material}] "
       "kite|[soft|floppy|patched|{@color}] teddy bear|{@material} "
       "[boat|horse|train|whistle|drum|flute|doll|puppet|top]|[{@color}|rusty|shiny|brand-new] "
       "scooter|[tiny|toy|{@color}] [truck|airplane|rocket|robot]|[{@color}|warm|fuzzy|patchwork] "
       "blanket|[old|silver|polished] harmonica|{@color} marble|{@material} music box"},
      {"treasure",
       "[tiny|rusty|golden|silver|old] [key|bell|compass|locket|lantern|coin|crown]|[smooth|glowing|{@color}|warm] "
       "[stone|shell|feather]|{@color} [seashell|button|bead|bottle]|[dusty|leather|very old] [book|map|diary]"},
      {"magic",
       "[tiny|crooked|glowing|dusty|silver] [bell|lamp|wand|spoon|teapot|whistle|mirror|ring]|{@color} "
       "[hat|umbrella|paintbrush|pencil|seed]"},
      {"breakable",
       "{@color} [vase|teapot|mug|bowl|lamp|jug]|[painted|shiny|thin|flowery] [plate|cup|vase|mirror|snow globe]"},
      {"treat",
       "a [warm|big|small|crunchy|sweet] [apple pie|cookie|muffin|pancake|cinnamon roll|pear|bun|carrot]|a bowl of "
       "[strawberries|soup|noodles|blueberries|rice pudding|cherries]|a slice of [chocolate cake|cheese|melon|lemon "
       "cake|buttered toast|pumpkin bread]|a cup of [hot cocoa|cold milk|apple juice|mint tea]|a "
       "[jam|cheese|honey|peanut butter] sandwich|a handful of [nuts|raisins|grapes|popcorn]|some [honey cakes|oatmeal "
       "cookies|roasted chestnuts|ripe plums|gingerbread]"},
      {"tool", "rope|ladder|broom|basket|bucket|shovel|hammer|lantern|wheelbarrow|net|blanket|long stick"},
      {"plant", "sunflower|pumpkin|bean|strawberry|tulip|tomato|carrot|rose|watermelon|sweet pea"},
      {"creature",
       "a [{@color}|sleepy|fat|tiny|shy] "
       "[butterfly|beetle|snail|frog|duckling|caterpillar|dragonfly|hedgehog|lizard]|the [sleepy|old|{@color}] "
       "[cat|goose|donkey|rooster|crow] by the {@near}"},
      {"seen",
       "a [{@color}|sleepy|fat|tiny|lost] [butterfly|beetle|snail|frog|duckling|caterpillar|dragonfly|hedgehog]|a "
       "[crooked|mossy|hollow|fallen] {@tree} tree|a [puddle|cloud|stone] shaped like a "
       "[heart|shoe|fish|teapot]|{@many} [geese|swallows|white sheep|brown hens|rabbits|goats]|a "
       "[small|crooked|broken|wooden] [gate|bridge|fence|sign]"},
      {"sound", "[strange|soft|scratchy|tiny|sad|squeaky|low|whistling] [sound|noise|cry|voice|song]"},
      {"dream",
       "[flying|sailing|dancing|floating|riding] [over|past|around] [the moon|{@many} islands|a sea of {@color} "
       "flowers|mountains made of [cake|clouds|pillows]]|[whales|castles|parades|rainbows|gardens] [full of|made "
       "of|covered with] [stars|lanterns|balloons|jam|music]|{@treat} and [new friends|a hundred adventures|{@weather} "
       "mornings]"},
      // ---- what single plots need
      {"be_good",
       "eat it slowly|keep it for when you are hungry|be home before dark|do not eat it all at once|take good care of "
       "it"},
      {"eating",
       "down to the very last crumb|and talked about {@song}|and counted the {@color} leaves|while {@many} birds sang "
       "above them"},
      {"spring", "spring"},
      {"winter", "winter"},
      {"baking_smell", "[warm|melted|brown|sweet] [butter|sugar|vanilla|cinnamon|honey]"},
      {"leaf", "a {@tree} leaf for a [hat|coat|roof]|{@many} {@tree} leaves"},
      {"body", "nose|knee|elbow|back|chin|ear"},
      {"creature_noun", "wild goat|young horse|kangaroo|big bear|pirate|circus clown|{@weather} wind"},
      {"peeked",
       "looked from the {@near}|came with a {@tool}|got up before the [sun|birds|rooster]|listened with one ear on the "
       "ground|asked {@many} worms about it"},
      {"my_wet", "my {h.clothes} is wet through|my {@body} is freezing|I have lost my {h.clothes}"},
      {"toy_noun", "toy boat|{@material} wagon|scooter|wheelbarrow|truck"},
      {"voice", "[a tiny|a deep|a silvery|a sleepy|a creaky|a {@weather}] voice"},
      {"missile", "{@many} [potatoes|old boots|pinecones|pancakes|turnips]|a bucket of {@mess}"},
      {"noisy_thing", "a {@instrument}|{@many} spoons|a drum|a good loud voice|a {@material} whistle"},
      {"seen_in_picture",
       "a portrait of [the mayor|a {@color} cow|a very old ship]|{@many} drawings of [cats|boats|apples]"},
      {"skill",
       "ride a [bicycle|unicycle|pony]|walk on [stilts|a rope]|do a [cartwheel|somersault|handstand]|climb a "
       "[rope|pole]|skate backward|jump rope|dance on one leg|roller-skate|juggle on a ball"},
      {"baby",
       "[tiny|small|muddy|frightened] [kitten|puppy|lamb|duckling|piglet|fawn|chick|rabbit]|baby "
       "[goat|fox|otter|deer|squirrel|hedgehog]"},
      {"trap",
       "stuck in [a hollow log|a muddy ditch|a hole under a {@tree} tree|an old {@material} barrel|a {@color} "
       "bucket]|caught in [the brambles|a fence|a fishing net]|sitting on a stone in the middle of the {@water}"},
      {"whispered_it", "cried|whispered|sobbed|squeaked"},
      {"seen_outside",
       "the clock tick {@many} times|a fly walk across the {@color} wall|{@count} bees outside by the {@near}|the "
       "kettle whistle a {@color} sort of tune"},
      {"project",
       "treehouse|raft|tower|bridge|birdhouse|soapbox car|puppet theater|snow fort|doghouse|little mill|pirate ship"},
      {"prize", "[golden|silver|shiny|enormous] [cup|medal|ribbon|trophy|crown]|[big|tall] basket of {@sweets}"},
      {"trophy", "[golden|silver|shiny|enormous] [cup|medal|ribbon|trophy|crown]"},
      {"prize_noun", "cup|medal|ribbon|trophy"},
      {"thing_indoors",
       "the ticking clock|the sleeping cat|{@many} [boots|umbrellas|jars of jam]|the {@material} chest|a {@color} "
       "chair"},
      {"near_room", "kitchen floor|porch|stairs|{@color} steps"},
      {"sweets", "[chocolate|lemon|peppermint|caramel|raspberry] [drops|candies|cookies|cakes]"},
      {"instrument",
       "{@material} [flute|guitar|banjo]|rusty [trumpet|trombone]|old [fiddle|horn|cello]|squeaky "
       "[accordion|clarinet]|dented tuba"},
      {"noise",
       "{@many} [angry geese|rusty doors|hungry cats]|a creaky gate in the wind|a cat in a {@material} bathtub|a cow "
       "with a cold|an old {@material} cart"},
      {"cake", "[apple|lemon|chocolate|carrot|plum|honey|cherry] [cake|pie|tart]"},
      {"face", "a goat eating a lemon|an owl with a toothache|a {@color} frog|a {@weather} {@weekday}"},
      {"warm_thing", "[{@color}|striped|thick|woolly] [mitten|hat|cap]"},
      {"season_warm", "spring comes|the first tulips bloom|the snow melts|the swallows return"},
      {"seen_pic", "{@seen} under a {@color} moon|{@seen} on top of a {@hill}|{@seen} beside the {@near}"},
      {"song_pic", "{@many} {@color} [bears|frogs|clouds|mice|boats] on a {@hill}"},
      {"boat", "[small|leaky|{@color}|wooden] [rowboat|raft|canoe]"},
      {"mess", "cold porridge|soapy water|tomato soup|{@color} paint|strawberry jam|pancake batter"},
      {"treat_plain", "a cheese sandwich|an old bun|a cold pancake|a pear"},
      {"indoor_junk",
       "{@many} [socks|crayons|marbles|buttons] and a {@toy}|a {@clothes} and half a biscuit|some {@color} paper, "
       "{@many} pencils, and a {@material} spoon"},
      {"one_day_night", "one clear night,|one {@weather} night in {season},|one night in {season},"},
      {"medicine",
       "a jar of [honey|honey and thyme|pine honey]|a bottle of [elderberry|cherry|raspberry] syrup|some ginger root"},
      {"trade_a", "a ball of {@color} wool|{@many} needles|a spool of {@color} thread|a piece of {@color} cloth"},
      {"trade_b", "a bag of {@color} marbles|a {@color} balloon|a {@material} drum|a jar of {@sweets}"},
      {"trade_c", "a {@color} umbrella|a new {@material} basket|a little brass bell|a good sharp pencil"},
      {"egg", "a big {@color} egg|a speckled {@color} egg|a small {@color} egg with {@many} dots"},
      {"hatchling", "goose|swan|crane|stork|heron"},
      {"secret",
       "{@many} [foxes|deer|rabbits|frogs] danced in the moonlight|a {@tree} tree grew {@color} "
       "[cherries|leaves|flowers] all year|a spring of warm {@color} water came out of the ground|an old {@material} "
       "swing hung over the {@water}"},
      // ---- feelings
      {"glad",
       "{x} felt so [happy|proud|glad|light] that {x.he} {@glad_deed}|{x} smiled from ear to ear and {@glad_deed}|{x} "
       "felt as [light|warm|bright] as [a feather|the sun|fresh bread|a summer cloud|a lantern], and {x.he} "
       "{@glad_deed}|{x} could not stop [smiling|laughing|humming], and {x.he} {@glad_deed}"},
      {"glad_deed",
       "[danced|hopped|skipped|ran] [around|past|under] the {@tree} tree|hugged {@hugged}|clapped {x.his} {x.hands} "
       "[twice|three times|again and again]|sang a song about {@song}|turned {@many} somersaults|jumped [as high as a "
       "[grasshopper|fence|kangaroo]|over a puddle|up and down like a [spring|frog|rubber ball]]|laughed until {x.his} "
       "[belly|sides|cheeks] hurt"},
      {"hugged", "everyone nearby|the nearest {@tree} tree|{x.his} {x.clothes}|the first person who came along"},
      {"song",
       "[{@color}|dancing|sleepy|brave|hungry] [bears|socks|frogs|clouds|teapots|mice|boats|potatoes]|the {@weather} "
       "[sky|{season}]|{@treat}"},
      {"sad",
       "{x} felt [sad|gloomy|lonely|miserable|heavy], and a [tear|single tear|big tear] rolled down {x.his} cheek and "
       "onto {x.his} {x.clothes}|{x} sat down [under|beside|behind] a [bush|{@tree} tree|stone wall|fence] and "
       "[sighed|sniffled|hid {x.his} face]|{x} felt {x.his} [lip|chin|voice] tremble, and even the {@near} looked "
       "[gray|sad|far away]|{x} did not want to [eat {@treat}|play|sing|talk to anyone] at all"},
      {"afraid",
       "{x} felt {x.his} knees [shake|wobble|tremble] like [jelly|leaves|a {@weather} puddle]|the heart of {x} beat as "
       "[fast|loudly] as a [drum|rabbit|clock|tin drum]|{x} held on to {x.his} {x.clothes} and took {@many} deep "
       "breaths|{x} wanted to run all the way back to the {@near}"},
      {"thinks",
       "{x} sat down on a [log|stone|bucket|step|mossy root] and thought for {@many} minutes|{x} scratched {x.his} "
       "[head|chin|nose] and looked at {@seen}|{x} walked around in {@many} circles, thinking hard|{x} closed {x.his} "
       "eyes and thought as hard as {x.he} could"},
      {"looks_around",
       "{x} looked behind the [shed|fence|{@near}|hedge] and under the [bench|bushes|leaves|stairs], but found only "
       "{@creature}|{x} searched every corner of the [hedge|yard|barn|garden] and found {@creature}|{x} asked the "
       "[baker|mailman|goose|goat|old cat] by the {@near}, who [shook a sleepy head|had not seen a thing|only "
       "shrugged]"},
      // ---- talk
      {"said",
       "said {x}|said {x} [softly|brightly|kindly|slowly|proudly|with a smile|with a nod]|{x} said|{x} "
       "[declared|announced]|{x} said, [tugging at {x.his} {x.clothes}|rubbing {x.his} {@body}|waving {x.his} "
       "{x.hands}|looking [up|down|around|straight ahead]|nodding {@count} times|blinking {@count} times]"},
      {"asked",
       "asked {x}|{x} asked|asked {x} [softly|quietly|in surprise|with wide eyes|in a small voice]|{x} wondered "
       "aloud|{x} wanted to know"},
      {"cried", "cried {x}|{x} shouted|shouted {x} [happily|loudly|from far away]|called {x}|{x} called out"},
      {"whispered",
       "whispered {x}|{x} whispered|{x} murmured|said {x} in a [tiny|shaky|quiet] voice|sighed {x}|{x} mumbled into "
       "{x.his} {x.clothes}"},
      // ---- meetings
      {"meets",
       "on the way, {x} met {y}, a {y.trait} {y.kind} who was wearing a {y.clothes}|near the {@near}, {x} saw a "
       "{y.kind} named {y} [sitting|resting|humming|reading|waiting] under a {@tree} tree|a {y.kind} named {y} came "
       "[running|strolling|skipping|hurrying] past the {@near} and stopped|behind {@seen} stood {y}, as {y.trait} a "
       "{y.kind} as anyone could hope to meet"},
      {"best_friend",
       "{x.his} best friend was a {y.trait} {y.kind} named {y}, who had {@looks y}|{x} had a friend called {y}, a "
       "{y.kind} who loved {@hobby}|every {@part}, {x} played with {y}, a {y.trait} {y.kind} from the {@near}"},
      {"walks",
       "{x} walked past {@seen}, over a [bridge|fence|fallen log|ditch], and through the {@wild}|{x} followed the "
       "[path|stream|stone wall|footprints] until {x.he} came to a {@wild}|past the {@near} and through the {@wild} "
       "went {x}, all the way to {@seen}"},
      // ---- beginnings
      {"open",
       "Once upon a time, a {@size} {x.kind} named {x} lived {home}.|There was once a {x.trait} {x.kind} called {x}, "
       "who lived {home}.|{x} was a {@size} {x.kind} who lived {home}.|Long ago, {home}, there lived a {x.trait} "
       "{x.kind} named {x}.|In a [land|time|place] of {@weather} {season} days, there was a {x.kind} named {x}, who "
       "lived {home}.|Not far from here, {home}, lived a {x.trait} {x.kind} whose name was {x}.|If you had walked past "
       "the {@near} one {@weather} {@part}, you might have met {x}, a {x.trait} {@size} {x.kind}.|Everyone near the "
       "{@near} knew {x}, the {x.trait} {x.kind} who lived {home}."},
      {"about",
       "{x.he} had {@looks x}.|{x} loved {@hobby}, but most of all {x.he} loved {@hobby}.|Every {@part}, {@habit "
       "x}.|{x.he} was also rather {@trait}, and {x.he} liked {@hobby}.|When the days were {@weather}, {@habit "
       "x}.|People said that {x} was [too|very|always|a little] {x.trait}, and {x.he} did not mind at all.|In "
       "[spring|summer] {x.he} liked {@hobby}, and in [autumn|winter] {x.he} liked {@hobby}."},
      // ---- endings
      {"end",
       "That night, {x} [slept|curled up|fell asleep] {@sleeps} and dreamed of {@dream}.|And if you walk past the "
       "{@near} on a {@weather} {@part}, you may still hear {x} laughing.|From that day on, {x} never forgot that "
       "{day} by the {@near}.|Then {x} went home, ate {@treat}, and told the whole story to the "
       "[cat|moon|goldfish|teapot].|To this day, {x} keeps a {@treasure} on the shelf to remember it.|It was the best "
       "{day} of the whole {season} for {x}.|When the moon rose over the {@near}, {x} was already dreaming of "
       "{@dream}.|And {x} lived happily [ever after|with {@many} new friends|near the {@near}]."},
      {"sleeps",
       "under {@many} blankets|with {x.his} {x.clothes} still on|next to a {@treasure}|as soundly as a "
       "[stone|dormouse|cloud|baby bear]|before [anyone could say good night|the kettle had cooled]"},
      {"learned",
       "[{x} had learned|{x} understood now|from then on, {x} knew|{x} told [everyone|the {@near} cat|{y}] "
       "afterward|that {day}, {x} learned|walking home past the {@near}, {x} understood] that"},
      {"moral_share",
       "food tastes better when it is shared|a treat cut in two makes two smiles|the more you give, the more comes "
       "back|there is always enough for one more friend"},
      {"moral_brave",
       "being brave means being afraid and still taking the next step|most scary things are small when you look at "
       "them closely|courage can be very quiet|the dark is only the day with its eyes closed"},
      {"moral_try",
       "every try makes the next one easier|falling down is a part of learning|slow and steady work is never "
       "wasted|nobody is good at something on the first day"},
      {"moral_help",
       "nobody is too small to help|two friends together are stronger than one giant|a helping hand always finds its "
       "way back|good friends make hard things easy"},
      {"moral_true",
       "the truth is easier to carry than a lie|saying sorry is a brave thing to do|a mistake can be mended when you "
       "tell the truth|honest words make hearts lighter"},
      {"moral_wait",
       "good things grow slowly|waiting is easier when you care for something|you cannot hurry a flower|patience is a "
       "kind of magic"},
      {"moral_kind",
       "a kind word can open any door|grumpy faces often hide lonely hearts|kindness is never wasted|a smile is the "
       "shortest way between two people"},
      {"moral_enough",
       "what you have is often better than what you wish for|more is not always better|the best things cannot be "
       "wished for|a happy heart does not need a bigger house"},
      {"moral_proud",
       "it is better to listen than to boast|everyone is good at something|being clever is nice, but being kind is "
       "nicer|even the fastest runner needs a friend"},
  };
  return lists;
}

}  // namespace taper
